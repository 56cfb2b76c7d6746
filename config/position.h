/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * position.h - the line on which a value of a JSON text begins.
 *
 * jansson tells lines of syntax errors only. It keeps members of an object in the order of the
 * text, so a value is found again by counting: path[0] is the index of a member (or element) of
 * the outermost container, path[1] within that, and so on. Names are never compared, so escapes in
 * them do not matter.
 */
#ifndef RCS_CONFIG_POSITION_H
#define RCS_CONFIG_POSITION_H

#include <stddef.h>

/*
 * text: valid JSON of len bytes. Returns the line, from 1, on which the member's name (in an object)
 * or the element (in an array) begins; 0 when the path leads nowhere. Reads nothing past len, also
 * in a text that is not valid.
 */
unsigned config_position_line(const char *text, size_t len, const size_t *path, size_t depth);

#endif
