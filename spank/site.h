/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The few keys of rcshare.conf that must be applied as root, before the daemon is the user's:
 * memory_limit_mb, cpu_weight, memlock_limit, nofile, key_file, log_dir, start_timeout_ms; and
 * keep_step, mark_down and tie_breaker, which are slurmstepd's.
 *
 * rcshare.conf is a flat JSON object. It is read here without a JSON library, since slurmstepd
 * brings json-c, whose symbols collide with jansson's. Nothing is judged: the daemon reads the
 * same file with the real parser (config/) and refuses a bad one, with its line, before it is
 * ready. What is not understood here counts as absent.
 */
#ifndef RCSHARE_SPANK_SITE_H
#define RCSHARE_SPANK_SITE_H

#include <stddef.h>

#include "spank/conf.h"

#define PLUG_SITE_FILE "/etc/rcshare/rcshare.conf"

/*
 * Finds `key` of the outermost object in JSON `text` and copies its value (a string without
 * quotes, or a number, true, false, null as written) to `out`. Returns 1, or 0 if there is none
 * that is plain. Pure.
 */
int plug_site_value(const char *text, const char *key, char *out, size_t size);

/* Applies what `text` says to *conf, where plugstack.conf said nothing. Pure. */
void plug_site_apply(const char *text, struct plug_conf *conf);

/*
 * plug_site_apply of conf->config, or of PLUG_SITE_FILE; a file that is not there says nothing. One that is not
 * root's, or that others may write, is not believed: -EPERM with a sentence, and conf as it was.
 */
int plug_site_load(struct plug_conf *conf, struct plug_error *err);

#endif
