// SPDX-License-Identifier: BSD-3-Clause
#include "spank/error.h"

#include <stdarg.h>
#include <stdio.h>

int plug_error_set(struct plug_error *err, int rc, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	/* Values of users are in it, and it goes into slurmd's log: one line, which it cannot end. */
	for (char *c = err->text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	return rc;
}
