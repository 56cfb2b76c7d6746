/* SPDX-License-Identifier: BSD-3-Clause */
/* What users and Slurm put into the plugin's hands: option values, node lists, plugstack arguments. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "spank/conf.h"
#include "spank/hostlist.h"
#include "spank/option.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct plug_option opt;
	struct plug_error err;
	struct plug_conf conf;
	char *text = malloc(size + 1), *names = NULL;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (plug_option_parse(text, &opt, &err) == 0 &&
		(opt.mode > PLUG_REQUIRE || opt.rails > PLUG_RAILS_MAX || opt.eager > 1))
		abort();
	if (plug_hostlist_expand(text, &names, &err) > 0) {
		if (plug_hostlist_find(names, "b0") < -1 && !names[0])
			abort();
		/* a list covers itself */
		if (!plug_hostlist_covers(text, text, &err))
			abort();
		free(names);
	}
	plug_conf_parse(1, &text, &conf, &err);
	free(text);
	return 0;
}
