/* SPDX-License-Identifier: BSD-3-Clause */
#include "config/position.h"

#include <stdbool.h>

struct scan {
	const char *at, *end;
	unsigned line;
};

static void scan_space(struct scan *s)
{
	for (; s->at < s->end; s->at++) {
		if (*s->at == '\n')
			s->line++;
		else if (*s->at != ' ' && *s->at != '\t' && *s->at != '\r')
			break;
	}
}

static bool scan_char(struct scan *s, char c)
{
	scan_space(s);
	if (s->at == s->end || *s->at != c)
		return false;
	s->at++;
	return true;
}

static void scan_string(struct scan *s) /* the opening quote was taken */
{
	while (s->at < s->end && *s->at != '"')
		s->at += *s->at == '\\' && s->end - s->at > 1 ? 2 : 1;
	if (s->at < s->end)
		s->at++;
}

/* Passes a value. Brackets are counted, so the depth of the text costs no stack. */
static void scan_value(struct scan *s)
{
	size_t depth = 0;

	scan_space(s);
	for (; s->at < s->end; scan_space(s)) {
		char c = *s->at;

		if (!depth && (c == ',' || c == '}' || c == ']'))
			return;
		s->at++;
		if (c == '"')
			scan_string(s);
		else if (c == '{' || c == '[')
			depth++;
		else if (c == '}' || c == ']')
			depth--;
	}
}

unsigned config_position_line(const char *text, size_t len, const size_t *path, size_t depth)
{
	struct scan s = {.at = text, .end = text + len, .line = 1};
	unsigned line = 0;

	for (size_t d = 0; d < depth; d++) {
		bool object = scan_char(&s, '{');

		if (!object && !scan_char(&s, '['))
			return 0;
		for (size_t i = 0;; i++) {
			scan_space(&s);
			if (s.at == s.end || *s.at == '}' || *s.at == ']')
				return 0;
			line = s.line;
			if (object) {
				if (!scan_char(&s, '"'))
					return 0;
				scan_string(&s);
				if (!scan_char(&s, ':'))
					return 0;
			}
			if (i == path[d])
				break;
			scan_value(&s);
			if (!scan_char(&s, ','))
				return 0;
		}
	}
	return line;
}
