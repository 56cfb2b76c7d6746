/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * key.h - the key of a region between two daemons: the importer's side and the owner's. A pure machine.
 *
 * The owner of this object (the daemon's runtime/node/key.c, or the simulator) carries the records between
 * the two, in order, and posts what names the key. Users hold (owner, region, generation); the rkeys come
 * with KEY. A region's generation is never given out again, not by the next daemon of its node either (they begin
 * where its incarnation says), so a key that was revoked stays so:
 *
 *	importer   NEW ----- KEY_ASK ----> ASKED -- KEY --> GOOD, or BAD: asked anew by the next request
 *	                                     |               |  core_import_check: asked again
 *	                                     +---- REVOKE ---+--> BAD for ever
 *
 * REVOKED is said when no request that named the key before is outstanding. Requests that come meanwhile find
 * the key revoked and end at once; nobody is asked.
 *
 * A message in a region (RTS) brings rkeys and an address of its own, which are that message's alone: they
 * say nothing of the region's key, whose base is another. Its request only counts among the key's uses.
 *
 *	owner      KEY_ASK: the node is an importer; RTS: it is one while the message is under way
 *	           closing: REVOKE to all; who does not answer in time loses its rails until it does; over when all
 *	           have answered, or when the lanes of who has not are stopped
 */
#ifndef RCS_CORE_KEY_H
#define RCS_CORE_KEY_H

#include <stdbool.h>
#include <stdint.h>

enum core_import_state {
	CORE_IMPORT_NEW,   /* nobody asked */
	CORE_IMPORT_ASKED, /* what it says of the key is not used meanwhile */
	CORE_IMPORT_GOOD,
	CORE_IMPORT_BAD,
};

struct core_import {
	enum core_import_state state;
	uint32_t uses; /* requests that name it, messages' too */
	bool revoked;
	bool told; /* REVOKED was said */
};

/* A request names the key from now on. true: send KEY_ASK. */
bool core_import_use(struct core_import *im);
/* A message of the region is fetched from now on. false: the region is being closed, and nothing is counted. */
bool core_import_message(struct core_import *im);
/* Before something runs again whose refusal may have been lost. true: send KEY_ASK. */
bool core_import_check(struct core_import *im);
/* KEY, an answer or news. false: it is of no use. */
bool core_import_learned(struct core_import *im, bool good);
/* REVOKE; and the end of a request. true: send REVOKED now. */
bool core_import_revoke(struct core_import *im);
bool core_import_unuse(struct core_import *im);/* The owner's daemon is another one, which knows no such key: what names it ends, and nobody is told. */
void core_import_gone(struct core_import *im);

struct core_importer {
	uint32_t node;
	bool key;  /* it asked for the key; else it knows of messages alone */
	bool down; /* its rails were taken down, or it is lost */
};

struct core_export {
	struct core_importer *list; /* the caller's, of room entries */
	uint32_t n, room;
	bool revoking;
	uint64_t until; /* answers are waited for */
};

/* false: there is no room for one more. */
bool core_export_add(struct core_export *x, uint32_t node, bool key);
/*
 * The owner, which lives, closes the region: its messages are over. true: there are importers, call
 * core_export_revoke() and send REVOKE to each that is not down.
 */
bool core_export_close(struct core_export *x);
void core_export_revoke(struct core_export *x, uint64_t until);
/* REVOKED. false: nobody waited for it. *was_down: its rails may come up again. */
bool core_export_answered(struct core_export *x, uint32_t node, bool *was_down);
/* The daemon there is another one: it holds nothing. false: the former was no importer. */
bool core_export_gone(struct core_export *x, uint32_t node, bool *was_down);
/* It is lost: nobody waits for its word any more, only for the end of its lanes. false: it is no importer. */
bool core_export_lost(struct core_export *x, uint32_t node);
/* The next importer that has not answered in time, and is down from now on; NULL: none. */
const struct core_importer *core_export_late(struct core_export *x, uint64_t now);
#endif
