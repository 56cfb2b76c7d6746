/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control and membership messages that make no sense, to machines in some state: the input is a
 * sequence of messages, a byte before each says which machine and how much time passes.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/link.h"
#include "core/view.h"

#define MSG 96u
_Static_assert(sizeof(struct core_ctrl) == MSG && sizeof(struct core_view_msg) == MSG, "one size");

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void link_one(struct core_link *l, const uint8_t *msg, uint8_t how, uint64_t now)
{
	static const uint8_t blob[CORE_BLOB];
	struct core_act a;
	struct core_ctrl c;

	memcpy(&c, msg, sizeof(c));
	core_link_rx_ctrl(l, how & 4 ? CORE_LANE_TCP : how & 1, l->lane[how & 1].gen, &c, now);
	core_link_probe_answered(l, how & 1, c.token, now);
	for (int i = 0; i < 64 && core_link_poll(l, 0xff, now, &a) != CORE_ACT_NONE; i++) {
		if (a.type == CORE_ACT_OPEN && a.lane != CORE_LANE_TCP)
			core_link_opened(l, a.lane, a.gen, blob, now);
		if (a.type == CORE_ACT_CONNECT)
			core_link_connected(l, a.lane, a.gen, now);
		if (a.type == CORE_ACT_FENCE)
			core_link_fenced(l, a.lane, a.gen, now);
		if (a.type == CORE_ACT_PROBE && how & 8)
			core_link_probe_answered(l, a.lane, a.seq, now);
	}
}

static void view_one(struct core_view *v, const uint8_t *msg, uint64_t now)
{
	struct core_view_act a;
	struct core_view_msg m;

	memcpy(&m, msg, sizeof(m));
	core_view_rx(v, &m, now);
	for (int i = 0; i < 256 && core_view_poll(v, now, &a) != CORE_VIEW_ACT_NONE; i++)
		if (a.type == CORE_VIEW_ACT_SEND && a.node >= 5)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct core_view_cfg vc;
	struct core_link link;
	struct core_cfg lc;
	struct core_view *v;
	uint64_t now = 1000000000;
	void *mem;

	core_cfg_default(&lc);
	lc.self = 1;
	core_link_init(&link, &lc, now);
	core_link_want(&link, now);
	core_link_lane_up(&link, CORE_LANE_TCP, 1, now);
	core_link_rail(&link, 0, true, CORE_R_NONE, now);
	core_view_cfg_default(&vc);
	vc.nodes = 5;
	vc.spares = 1;
	vc.self = 2;
	mem = calloc(1, core_view_size(&vc));
	v = core_view_init(mem, &vc, now);
	core_view_suspect(v, 0, now);
	for (; size > MSG; data += 1 + MSG, size -= 1 + MSG) {
		now += (uint64_t)(data[0] & 0xf0) * 1000000;
		if (data[0] & 2)
			link_one(&link, data + 1, data[0], now);
		else
			view_one(v, data + 1, now);
	}
	free(mem);
	return 0;
}
