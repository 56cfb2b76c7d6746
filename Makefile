# SPDX-License-Identifier: BSD-3-Clause
#
# The one entry: make, make check, make demo, make bench, make install.
# `make help` lists the targets. V=1 shows commands, SAN=address,undefined (or thread) builds
# with sanitizers into a build folder of its own.

VERSION  := 0.2.0
PREFIX   ?= /usr
MULTI    := $(shell $(CC) -print-multiarch 2>/dev/null)
# Debian has lib/ARCH, RHEL and SUSE lib64.
LIBDIR   ?= $(PREFIX)/$(if $(MULTI),lib/$(MULTI),$(if $(wildcard /usr/lib64),lib64,lib))
# Where Slurm looks, whatever PREFIX is: as its slurm.pc says, else Debian's folder, else upstream's packages'.
SLURM_PLUGIN_DIR ?= $(firstword $(shell pkg-config --variable=plugindir slurm 2>/dev/null) \
                    $(patsubst %/auth_munge.so,%,$(wildcard $(addsuffix /auth_munge.so, \
                    /usr/lib/$(MULTI)/slurm-wlm /usr/lib64/slurm /usr/lib/$(MULTI)/slurm /usr/lib/slurm \
                    $(PREFIX)/lib64/slurm $(PREFIX)/lib/slurm))) \
                    $(wildcard /usr/lib/$(MULTI)/slurm-wlm) $(LIBDIR)/slurm)
BINDIR   ?= $(PREFIX)/bin
SBINDIR  ?= $(PREFIX)/sbin
INCDIR   ?= $(PREFIX)/include
MANDIR   ?= $(PREFIX)/share/man
DOCDIR   ?= $(PREFIX)/share/doc/rcshare
SYSCONF  ?= /etc

SAN      ?=
B        ?= build$(if $(SAN),/$(subst $(comma),-,$(SAN)))
comma    := ,
Q        := $(if $(V),,@)
say       = $(if $(V),,@printf '  %-6s %s\n' $(1) $(2))

CC       ?= gcc
OPT      ?= -O2 -g
CFLAGS   ?= $(OPT)
WARN     := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
# ThreadSanitizer knows no fences; those of the rings order a wakeup flag, no data.
HARDEN   := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer $(if \
            $(filter thread,$(SAN)),-Wno-tsan),-D_FORTIFY_SOURCE=2 -fstack-protector-strong)
pkgs      = $(shell pkg-config $(1) $(2) 2>/dev/null)
HAVE_VERBS := $(shell pkg-config --exists libibverbs && echo 1)
HAVE_PMIX  := $(shell pkg-config --exists pmix && echo 1)
HAVE_SLURM := $(shell echo '\#include <slurm/spank.h>' | $(CC) $(CFLAGS) -E - >/dev/null 2>&1 && echo 1)
HAVE_CMOCKA := $(shell pkg-config --exists cmocka && echo 1)

CPPF     := -std=gnu11 -D_GNU_SOURCE -DRCS_VERSION='"$(VERSION)"' -I. -Iruntime -Iruntime/include \
            $(call pkgs,--cflags,jansson hwloc libibverbs libcrypto pmix)
ALLCF     = $(CPPF) $(WARN) $(HARDEN) $(CFLAGS) -fPIC -fvisibility=hidden -pthread -MMD -MP
LDF       = $(if $(SAN),-fsanitize=$(SAN),-Wl,-z,relro,-z,now -Wl,--as-needed) -pthread $(LDFLAGS)

LIBS_node := $(call pkgs,--libs,jansson hwloc libibverbs libcrypto)
LIBS_lib  := $(call pkgs,--libs,pmix)
LIBS_cli  := $(call pkgs,--libs,jansson)
LIBS_spank := $(call pkgs,--libs,libcrypto) -ldl

src       = $(wildcard $(addsuffix /*.c,$(1)))
obj       = $(patsubst %.c,$(B)/obj/%.o,$(1))
CORE     := $(call obj,$(call src,runtime/core))
WIRE     := $(call obj,$(call src,runtime/wire))
SHM      := $(call obj,$(call src,runtime/shm))
CONF     := $(call obj,$(call src,config))
PMIXO    := $(call obj,$(call src,pmix))
NODE     := $(call obj,$(call src,runtime/node))
CLIENT   := $(call obj,$(call src,runtime/client))
CLI      := $(call obj,$(call src,runtime/cli))
SPANK    := $(call obj,$(call src,spank))
MAINS    := $(call obj,runtime/node/main.c runtime/cli/main.c)

APPS     := $(patsubst tests/apps/%.c,$(B)/apps/%,$(wildcard tests/apps/*.c))
HAVE_MPICC := $(shell command -v mpicc)
BENCHES  := $(patsubst tests/bench/%.c,$(B)/bench/%,$(filter-out \
            $(if $(HAVE_MPICC),,tests/bench/mpi_%.c),$(wildcard tests/bench/*.c)))
UNITS    := $(patsubst tests/unit/%.c,$(B)/unit/%,$(wildcard tests/unit/*_test.c))
MANS     := $(patsubst docs/man/%.scd,$(B)/man/%,$(wildcard docs/man/*.scd))

HAVE_JANSSON := $(shell pkg-config --exists jansson libcrypto hwloc && echo 1)
PRODUCTS  = $(if $(HAVE_JANSSON),$(if $(NODE),$(if $(HAVE_VERBS),$(B)/rcshared)) \
            $(if $(CLI),$(B)/rcshare)) \
            $(if $(HAVE_PMIX),$(if $(CLIENT),$(B)/librcshare.so)) \
            $(if $(HAVE_SLURM),$(if $(SPANK),$(B)/rcshare_spank.so))

.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all help apps benches units man check check-unit check-sim check-slurm check-lab check-fuzz check-san check-mutants check-full \
        sim sim-view sim-scale check-model soak-sim demo bench lab-matrix install uninstall deb deps \
        lab-shell fuzz clean compdb lint coverage

all: $(PRODUCTS) man left-out

.PHONY: left-out
left-out:
	$(if $(HAVE_VERBS),,@echo 'left out: rcshared, needs libibverbs-dev')
	$(if $(HAVE_PMIX),,@echo 'left out: librcshare.so, needs libpmix-dev')
	$(if $(HAVE_SLURM),,@echo 'left out: rcshare_spank.so, needs libslurm-dev')
	$(if $(HAVE_JANSSON),,@echo 'left out: rcshared and rcshare, need libjansson-dev libhwloc-dev libssl-dev')

help:
	@echo 'make              build everything the installed packages allow'
	@echo 'make deps         install the Debian packages that build and tests need (root)'
	@echo 'make demo         Slurm jobs in a virtual RDMA cluster survive a cut cable and a killed node'
	@echo 'make check        all tests; check-unit, check-sim, check-slurm, check-lab are its parts'
	@echo 'make check-full   everything, on both suites; check-san: sanitizers and valgrind'
	@echo 'make check-mutants  faults planted one by one, each must turn its tests red'
	@echo 'make fuzz         what strangers may send, a minute each; check-fuzz: 6 s each'
	@echo 'make sim SEEDS=N  random failures of the protocol; SEED=s replays one'
	@echo 'make sim-view     the same for membership; sim-scale: one node loss among 10,000'
	@echo 'make check-model  the decisions that must not fail, checked exhaustively (spin)'
	@echo 'make bench        the figures, into build/bench.json'
	@echo 'make lab-matrix   each failure under each load, both suites, into docs/failover-matrix.md'
	@echo 'make lab-shell    a shell in the virtual cluster (SUITE=bookworm|trixie)'
	@echo 'make lint         clang-tidy; coverage: what the unit tests and simulators execute'
	@echo 'make compdb       build/compile_commands.json, for clangd'
	@echo 'make install      DESTDIR, PREFIX as usual; uninstall; deb: a Debian package'

$(B)/obj/%.o: %.c
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALLCF) -c -o $@ $<

# The plugin starts the daemon where it is installed: made anew when SBINDIR changes.
$(B)/obj/spank/conf.o: CPPF += -DRCSHARE_DAEMON='"$(SBINDIR)/rcshared"'
$(B)/obj/spank/conf.o: $(B)/obj/sbindir
$(B)/obj/sbindir: always
	@mkdir -p $(@D)
	@echo '$(SBINDIR)' | cmp -s - $@ || echo '$(SBINDIR)' >$@
.PHONY: always

$(B)/rcshared: $(NODE) $(CORE) $(WIRE) $(SHM) $(CONF)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDF) -pie -o $@ $^ $(LIBS_node)

$(B)/rcshare: $(CLI) $(CONF) $(SHM)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDF) -pie -o $@ $^ $(LIBS_cli)

$(B)/librcshare.so: $(CLIENT) $(PMIXO) $(WIRE) $(SHM) runtime/client/librcshare.map
	$(call say,LD,$@)
	$(Q)$(CC) $(LDF) -shared -Wl,-soname,librcshare.so.0 \
		-Wl,--version-script=runtime/client/librcshare.map -o $@ $(filter %.o,$^) $(LIBS_lib)
	@ln -sf librcshare.so $(B)/librcshare.so.0

$(B)/rcshare_spank.so: $(SPANK) spank/spank.map
	$(call say,LD,$@)
	$(Q)$(CC) $(LDF) -shared -Wl,--version-script=spank/spank.map -o $@ $(filter %.o,$^) \
		$(LIBS_spank)

# Programs of the tests: pmix_* speak PMIx alone, the others use the library as a user would.
apps: $(APPS)
$(B)/apps/pmix_%: tests/apps/pmix_%.c
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALLCF) $(LDF) -o $@ $< $(LIBS_lib)
$(B)/apps/%: tests/apps/%.c $(wildcard tests/apps/*.h) $(B)/librcshare.so
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALLCF) $(LDF) -o $@ $< -L$(B) -Wl,-rpath,'$$ORIGIN/..' -lrcshare $(LIBS_lib)

# Programs of the bench: mpi_* need mpicc and are left out without; the others are made of the
# daemon's own objects.
benches: $(BENCHES)
$(B)/bench/mpi_%: tests/bench/mpi_%.c
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)mpicc -std=gnu11 -D_GNU_SOURCE $(WARN) $(CFLAGS) -o $@ $<
$(B)/bench/%: $(B)/obj/tests/bench/%.o $(CORE) $(WIRE) $(SHM) $(CONF) $(filter-out $(MAINS),$(NODE))
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDF) -o $@ $^ $(LIBS_node)

units: $(UNITS)
# MPI_Initialized and cuPointerGetAttribute of these are found as a program's are
$(B)/unit/client_place_test $(B)/unit/client_region_test: LDF += -rdynamic
$(B)/unit/%: $(B)/obj/tests/unit/%.o $(CORE) $(WIRE) $(SHM) $(CONF) \
		$(filter-out $(MAINS),$(NODE) $(CLI) $(CLIENT) $(PMIXO)) \
		$(filter-out $(B)/obj/spank/plugin.o,$(SPANK))
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDF) -o $@ $^ $(LIBS_node) $(LIBS_lib) $(LIBS_spank) $(call pkgs,--libs,cmocka)

# Two simulators in one room: the link's, and view_*.c for membership.
SIMVIEW  := $(call obj,$(wildcard tests/sim/view_*.c))
$(B)/sim: $(filter-out $(SIMVIEW),$(call obj,$(call src,tests/sim))) $(CORE) $(WIRE)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDF) -o $@ $^
$(B)/sim-view: $(SIMVIEW) $(CORE)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDF) -o $@ $^ -lm

# Fuzzers (tests/fuzz/run, which gives compiler, flags and a build folder): linked with what each of them needs of
# all there is; ports, the daemon's main file and threads are those of the bed.
FUZZBED  := $(call obj,$(filter-out tests/fuzz/fuzz_%.c,$(wildcard tests/fuzz/*.c)))
FUZZLIB  := $(FUZZBED) $(CORE) $(WIRE) $(SHM) $(CONF) $(CLIENT) $(PMIXO) $(filter-out $(B)/obj/spank/plugin.o,$(SPANK)) \
            $(filter-out $(MAINS) $(call obj,$(wildcard runtime/node/verbs*.c) runtime/node/work.c runtime/node/place.c),$(NODE))
$(B)/lib.a: $(FUZZLIB)
	$(call say,AR,$@)
	$(Q)rm -f $@ && ar rcs $@ $^
$(B)/%/fuzz: $(B)/obj/tests/fuzz/fuzz_%.o $(B)/lib.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LDF) -fsanitize=fuzzer -o $@ $^ $(LIBS_node) $(LIBS_lib) $(LIBS_spank)

man: $(MANS)
$(B)/man/%: docs/man/%.scd
	@mkdir -p $(@D)
	$(Q)if command -v scdoc >/dev/null; then scdoc < $< > $@; \
		else echo 'left out: $(@F), needs scdoc'; fi

deps:
	@tests/deps

SEEDS ?= 2000
sim: $(B)/sim
	$(Q)$(B)/sim $(if $(SEED),--seed $(SEED) --verbose,--seeds $(SEEDS))
soak-sim: $(B)/sim
	$(Q)$(B)/sim --seeds 100000
sim-view: $(B)/sim-view
	$(Q)$(B)/sim-view $(if $(SEED),--seed $(SEED) --verbose,--seeds $(SEEDS))
check-model:
	$(Q)tests/deps model && docs/models/check
sim-scale: $(B)/sim-view
	$(Q)$(B)/sim-view --scale

check:
	$(Q)tests/check all
check-full:
	$(Q)tests/check full
check-unit check-sim check-slurm check-lab check-fuzz check-san: check-%:
	$(Q)tests/check $*
check-mutants:
	$(Q)tests/deps && tests/mutants/run
fuzz:
	$(Q)tests/deps && tests/fuzz/run
demo:
	$(Q)tests/lab/demo
bench:
	$(Q)tests/bench/bench
lab-matrix:
	$(Q)tests/lab/matrix $(if $(CELLS),'$(CELLS)')
compdb lint coverage:
	$(Q)tests/$@
lab-shell:
	$(Q)tests/lab/lab shell

install: all
	install -d $(DESTDIR)$(LIBDIR) $(DESTDIR)$(SLURM_PLUGIN_DIR) $(DESTDIR)$(BINDIR) \
		$(DESTDIR)$(SBINDIR) $(DESTDIR)$(INCDIR) $(DESTDIR)$(DOCDIR) \
		$(DESTDIR)$(SYSCONF)/rcshare $(DESTDIR)$(SYSCONF)/slurm/plugstack.conf.d
	install -m 755 $(B)/librcshare.so $(DESTDIR)$(LIBDIR)/librcshare.so.0
	ln -sf librcshare.so.0 $(DESTDIR)$(LIBDIR)/librcshare.so
	install -m 755 $(B)/rcshare_spank.so $(DESTDIR)$(SLURM_PLUGIN_DIR)/rcshare_spank.so
	# Not readable: then no process of its user can attach to it between its exec and its first instruction.
	install -m 711 $(B)/rcshared $(DESTDIR)$(SBINDIR)/rcshared
	install -m 755 $(B)/rcshare $(DESTDIR)$(BINDIR)/rcshare
	install -m 644 runtime/include/rcshare.h $(DESTDIR)$(INCDIR)/rcshare.h
	install -m 644 pmix/events.h $(DESTDIR)$(INCDIR)/rcshare_events.h
	install -m 644 docs/failover.md docs/failover-matrix.md docs/nodes.md docs/security.md docs/compare.md \
		docs/figures.md CHANGELOG.md tests/apps/rcs_ckpt.c $(DESTDIR)$(DOCDIR)
	test -e $(DESTDIR)$(SYSCONF)/rcshare/rcshare.conf || \
		install -m 644 config/rcshare.conf $(DESTDIR)$(SYSCONF)/rcshare/rcshare.conf
	test -e $(DESTDIR)$(SYSCONF)/slurm/plugstack.conf.d/rcshare.conf || \
		sed 's|rcshare_spank.so|$(SLURM_PLUGIN_DIR)/&|' config/plugstack.conf \
			>$(DESTDIR)$(SYSCONF)/slurm/plugstack.conf.d/rcshare.conf
	for m in $(MANS); do s=$${m##*.}; install -D -m 644 $$m $(DESTDIR)$(MANDIR)/man$$s/$${m##*/}; done

uninstall:
	rm -f $(DESTDIR)$(LIBDIR)/librcshare.so* $(DESTDIR)$(SLURM_PLUGIN_DIR)/rcshare_spank.so \
		$(DESTDIR)$(SBINDIR)/rcshared $(DESTDIR)$(BINDIR)/rcshare \
		$(DESTDIR)$(INCDIR)/rcshare.h $(DESTDIR)$(INCDIR)/rcshare_events.h
	rm -rf $(DESTDIR)$(DOCDIR)
	for m in $(MANS); do s=$${m##*.}; rm -f $(DESTDIR)$(MANDIR)/man$$s/$${m##*/}; done

deb: all
	$(Q)config/packaging/deb $(VERSION)

clean:
	rm -rf $(B)/obj $(B)/unit $(B)/apps $(B)/bench $(B)/man $(B)/sim $(B)/sim-view $(B)/rcshared $(B)/rcshare \
		$(B)/librcshare.so* $(B)/rcshare_spank.so

-include $(shell test -d $(B)/obj && find $(B)/obj -name '*.d')
