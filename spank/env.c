// SPDX-License-Identifier: BSD-3-Clause
#include "spank/env.h"

#include <stdio.h>
#include <string.h>

static const char *const known[] = {
	PLUG_ENV_DEFAULT,
	PLUG_ENV_SOCKET,
	PLUG_ENV_STEP,
	PLUG_ENV_DISABLED,
	PLUG_ENV_LOG_LEVEL,
	"RCSHARE_RUN_DIR", /* of the command rcshare */
	PLUG_ENV_EAGER,
	PLUG_ENV_NO_KILL,
	PLUG_ENV_SPARES,
};

int plug_env_unknown(char *const *env, size_t *pos, char *name, size_t size)
{
	size_t i, len;
	const char *var;

	while (env && (var = env[*pos])) {
		++*pos;
		len = strcspn(var, "=");
		if (strncmp(var, "RCSHARE", 7) != 0 || (len > 7 && var[7] != '_'))
			continue;
		for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			if (strlen(known[i]) == len && strncmp(var, known[i], len) == 0)
				break;
		if (i < sizeof(known) / sizeof(known[0]))
			continue;
		snprintf(name, size, "%.*s", (int)len, var);
		return 1;
	}
	return 0;
}
