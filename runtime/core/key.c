/* SPDX-License-Identifier: BSD-3-Clause */
#include "core/key.h"

#include <stddef.h>

bool core_import_use(struct core_import *im)
{
	bool ask = !im->revoked && (im->state == CORE_IMPORT_NEW || im->state == CORE_IMPORT_BAD);

	im->uses++;
	if (ask)
		im->state = CORE_IMPORT_ASKED;
	return ask;
}

bool core_import_message(struct core_import *im)
{
	if (im->revoked)
		return false;
	im->uses++;
	return true;
}

bool core_import_check(struct core_import *im)
{
	if (im->revoked || im->state != CORE_IMPORT_GOOD)
		return false;
	im->state = CORE_IMPORT_ASKED;
	return true;
}

bool core_import_learned(struct core_import *im, bool good)
{
	if (im->revoked || im->state == CORE_IMPORT_NEW)
		return false;
	im->state = good ? CORE_IMPORT_GOOD : CORE_IMPORT_BAD;
	return true;
}

static bool answers(struct core_import *im)
{
	if (!im->revoked || im->uses || im->told)
		return false;
	im->told = true;
	return true;
}

bool core_import_revoke(struct core_import *im)
{
	im->revoked = true;
	im->state = CORE_IMPORT_BAD;
	im->told = false;
	return answers(im);
}

bool core_import_unuse(struct core_import *im)
{
	im->uses--;
	return answers(im);
}

void core_import_gone(struct core_import *im)
{
	im->revoked = im->told = true;
	im->state = CORE_IMPORT_BAD;
}

/* --- the owner's side -------------------------------------------------------------------------------- */

static struct core_importer *find(const struct core_export *x, uint32_t node)
{
	for (uint32_t i = 0; i < x->n; i++)
		if (x->list[i].node == node)
			return &x->list[i];
	return NULL;
}

bool core_export_add(struct core_export *x, uint32_t node, bool key)
{
	struct core_importer *p = find(x, node);

	if (p) {
		p->key |= key;
		return true;
	}
	if (x->n == x->room)
		return false;
	x->list[x->n++] = (struct core_importer){.node = node, .key = key};
	return true;
}

bool core_export_close(struct core_export *x)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < x->n; i++)
		if (x->list[i].key || x->list[i].down)
			x->list[n++] = x->list[i];
	x->n = n;
	return n;
}

void core_export_revoke(struct core_export *x, uint64_t until)
{
	x->revoking = true;
	x->until = until;
}

bool core_export_gone(struct core_export *x, uint32_t node, bool *was_down)
{
	struct core_importer *p = find(x, node);

	if (!p)
		return false;
	*was_down = p->down;
	*p = x->list[--x->n];
	return true;
}

bool core_export_answered(struct core_export *x, uint32_t node, bool *was_down)
{
	return x->revoking && core_export_gone(x, node, was_down);
}

bool core_export_lost(struct core_export *x, uint32_t node)
{
	struct core_importer *p = find(x, node);

	if (!p)
		return false;
	p->down = true;
	return true;
}

const struct core_importer *core_export_late(struct core_export *x, uint64_t now)
{
	if (!x->revoking || now < x->until)
		return NULL;
	for (uint32_t i = 0; i < x->n; i++)
		if (!x->list[i].down) {
			x->list[i].down = true;
			return &x->list[i];
		}
	return NULL;
}
