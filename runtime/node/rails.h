/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rails.h - which rail of this node a lane of a link is on.
 *
 * A lane has the index of the rail of the lower node, which opens it; the higher node answers with the rail of its
 * own that meets that one (fabric.h), or that none does. Everything else of a link counts lanes; keys,
 * registrations, events, logs and tables count the node's own rails.
 */
#ifndef RCS_NODE_RAILS_H
#define RCS_NODE_RAILS_H

#include "node/node.h"

void rails_begin(struct link *l); /* after core_link_init(), and for another daemon of the peer */
/* Own rail of the lane; CORE_LANE_TCP and CORE_LANE_NONE are themselves. FABRIC_NONE: not known. */
uint8_t rails_own(const struct link *l, uint8_t lane);
uint8_t rails_told(const struct link *l, uint8_t lane); /* ... then the lane itself: for news and logs */
bool rails_has(const struct link *l, uint8_t rail);	  /* one of its lanes is on that rail */
uint8_t rails_lane(const struct link *l, const struct verbs_lane *vl); /* CORE_LANE_NONE: of none */
/* CORE_ACT_OPEN: the rail to open the lane on, or FABRIC_NONE: the lane was ended. */
uint8_t rails_choose(struct link *l, uint8_t lane);
void rails_changed(struct link *l, uint8_t rail, bool ok, enum core_reason why);
void rails_all(struct link *l, bool ok, enum core_reason why); /* ok: as far as they are */
/* Every lane that can be there is up. */
bool rails_open(const struct link *l);
/* Own rails that meet none of that node, as far as known (bits). */
uint32_t rails_unmet(const struct link *l);
/* For the step's user: rails of this node that meet none of others; "" where there are none. */
void rails_notice(const struct node *n, char *out, size_t len);

#endif
