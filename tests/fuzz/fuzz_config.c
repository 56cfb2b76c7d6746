/* SPDX-License-Identifier: BSD-3-Clause */
/* Any text as rcshare.conf: refused with a sentence, or shown and read again to the same values. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/position.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config_error err = {0};
	struct config cfg, again;
	char *text = malloc(size ? size : 1), *shown = NULL;
	size_t len = 0;
	FILE *f;

	if (!text)
		return 0;
	memcpy(text, data, size);
	config_position_line(text, size, (const size_t[]){1, 1, 1}, 3);
	if (config_parse(text, size, "fuzz", &cfg, &err)) {
		if (!err.text[0] || !err.reason[0])
			abort();
	} else {
		f = open_memstream(&shown, &len);
		if (!f || config_show(&cfg, f))
			abort();
		fclose(f);
		if (config_parse(shown, len, "shown", &again, &err) ||
			memcmp(&cfg, &again, sizeof(cfg)))
			abort();
		free(shown);
	}
	free(text);
	return 0;
}
