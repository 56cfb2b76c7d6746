/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One sentence for a human about what failed, filled by the function that returns an error.
 */
#ifndef RCSHARE_SPANK_ERROR_H
#define RCSHARE_SPANK_ERROR_H

struct plug_error {
	char text[512];
};

/* Fills *err and returns rc (a negative errno), so that a function can end with it. */
int plug_error_set(struct plug_error *err, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
