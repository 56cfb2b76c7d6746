/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What came from a file or a daemon is another user's text, and goes to the terminal of whoever asked, perhaps
 * root's: nothing in it may steer that.
 */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

/* Length of the UTF-8 sequence at s that shows something, or 0: a control character, or no UTF-8. */
static size_t text_shows(const unsigned char *s)
{
	size_t n = *s < 0x80 ? 1 : *s < 0xc2 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : *s < 0xf5 ? 4 : 0;

	if (*s < ' ' || *s == 0x7f)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return n == 2 && *s == 0xc2 && s[1] < 0xa0 ? 0 : n; /* U+0080 to U+009F */
}

char *cli_clean(char *text)
{
	unsigned char *s = (unsigned char *)text;
	size_t n;

	while (s && *s) {
		n = text_shows(s);
		if (!n)
			*s = '?';
		s += n ? n : 1;
	}
	return text;
}

int cli_fail(int code, const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		text = NULL;
	va_end(ap);
	fprintf(stderr, "rcshare: %s\n", text ? cli_clean(text) : "out of memory");
	free(text);
	return code;
}
