/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer node whose daemon has proven the job's token and then sends what it likes, in steps. It is a real
 * daemon, so the connection, the lanes and the numbers of frames are as they should be, and between two steps it
 * may go on as a daemon does; the fuzzer makes it send records of any kind (keys that nobody asked for, answers to
 * nothing, generations of the past), and frames whose header is wrong. Ranks of the node under test have requests
 * and regions meanwhile. That node's two ranks must go on, and when the peer is lost nothing may be left.
 */
#include <stdlib.h>
#include <string.h>

#include "bed_rank.h"
#include "core/view.h"

#define RANKS 2u /* of the node under test, 0 */

static struct bed_rank rank[RANKS], far; /* far: of the peer */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct wire_key some_key(struct pick *p)
{
	const struct bed_rank *of = pick_below(p, 3) ? &rank[pick_below(p, RANKS)] : &far;
	struct wire_key k = of->key[pick_below(p, 2)];

	if (!pick_often(p))
		k.gen += pick_below(p, 3) - 1u;
	return pick_often(p) ? k : wire_key_unpack(pick_number(p));
}

/* --- records ------------------------------------------------------------------------------------------------ */

static void view_fill(struct pick *p, struct wire_rec *rec, uint8_t *to)
{
	rec->data = pick_below(p, 2);
	rec->len = sizeof(struct core_view_msg);
	pick_bytes(p, to, rec->len);
	if (pick_often(p))
		to[0] = (uint8_t)(1 + pick_below(p, 16)); /* its type */
}

static void payload_fill(struct pick *p, struct wire_rec *rec, uint8_t *to)
{
	struct wire_key k = some_key(p);
	struct wire_rts rts = {.key = k, .addr = BED_MEM + pick_number(p), .nrails = BED_RAILS, .rail_ok = pick_byte(p),
		.device = {1, 1}};
	struct wire_key_info info = {.addr = BED_MEM, .len = pick_often(p) ? BED_MEM_LEN : pick_number(p),
		.rail_ok = pick_byte(p) & 3, .device = {1, 1}};
	struct wire_atomic atom = {.op = (uint8_t)pick_below(p, 5), .size = pick_often(p) ? 8 : pick_byte(p)};
	struct shm_event ev = {.code = pick_below(p, 12), .origin = pick_below(p, 4), .seq = pick_byte(p),
		.peer = pick_below(p, 4)};

	rec->data = wire_key_pack(k);
	switch (rec->type) {
	case WIRE_REC_RTS:
		memcpy(to, &rts, rec->len = sizeof(rts));
		break;
	case WIRE_REC_KEY:
		rec->arg = pick_often(p) ? 0 : rec->arg;
		memcpy(to, &info, rec->len = sizeof(info));
		break;
	case WIRE_REC_RATOM:
		memcpy(to, &atom, rec->len = sizeof(atom));
		break;
	case WIRE_REC_EVENT:
		memcpy(to, &ev, rec->len = sizeof(ev));
		break;
	case WIRE_REC_VIEW:
		view_fill(p, rec, to);
		break;
	case WIRE_REC_ENDED:
		rec->data = pick_below(p, 3);
		break;
	case WIRE_REC_RPUT:
	case WIRE_REC_RDATA:
	case WIRE_REC_MSG:
	case WIRE_REC_PUSH:
		rec->len = (uint32_t)pick_number(p) % (WIRE_REC_PAYLOAD_MAX + 1);
		break;
	default:
		break;
	}
}

static void record(struct pick *p, struct link *l)
{
	static const uint8_t likely[] = {WIRE_REC_KEY_ASK, WIRE_REC_KEY, WIRE_REC_REVOKE, WIRE_REC_REVOKED, WIRE_REC_RTS,
		WIRE_REC_RPUT, WIRE_REC_RGET, WIRE_REC_RATOM, WIRE_REC_RDONE, WIRE_REC_RDATA, WIRE_REC_VIEW, WIRE_REC_ENDED,
		WIRE_REC_MSG, WIRE_REC_GONE, WIRE_REC_CTS, WIRE_REC_EVENT, WIRE_REC_CREDIT, WIRE_REC_GET_DONE};
	static uint8_t payload[WIRE_REC_PAYLOAD_MAX];
	const struct bed_rank *to = &rank[pick_below(p, RANKS)];
	struct wire_rec rec = {.type = pick_often(p) ? likely[pick_below(p, sizeof(likely))] : pick_below(p, 40),
		.flags = (uint16_t)pick_byte(p), .src_node = 1, .src_ep = far.slot, .src_epoch = far.epoch, .dst_ep = to->slot,
		.dst_epoch = to->epoch, .tag = pick_number(p), .op = 1 + pick_below(p, 8), .arg = pick_number(p)};

	memset(payload, 0, sizeof(payload));
	payload_fill(p, &rec, payload);
	if (rec.type == WIRE_REC_RDONE || rec.type == WIRE_REC_RDATA || rec.type == WIRE_REC_EVENT ||
		rec.type == WIRE_REC_KEY)
		rec.dst_ep = NODE_EP_DAEMON;
	if (!pick_often(p))
		rec.dst_ep = (uint16_t)pick_number(p);
	if (!pick_often(p))
		rec.src_ep = (uint16_t)pick_number(p);
	if (!pick_often(p))
		rec.dst_node = rec.src_node = (uint16_t)pick_number(p);
	if (!pick_often(p))
		rec.len = pick_byte(p);
	bed_say("peer: record of type %u, key %llx, op %llx, arg %llx, tag %llx, %u bytes", rec.type,
		(unsigned long long)rec.data, (unsigned long long)rec.op, (unsigned long long)rec.arg,
		(unsigned long long)rec.tag, rec.len);
	for (uint32_t n = pick_often(p) ? 1 : pick_below(p, 40); n; n--)
		if (pick_often(p))
			link_answer(l, &rec, payload);
		else
			link_loose(l, &rec, payload);
}

/* --- frames --------------------------------------------------------------------------------------------------- */

static void frame(struct pick *p, struct link *l)
{
	static _Alignas(8) uint8_t buf[WIRE_FRAME_MAX];
	struct wire_frame *f = (struct wire_frame *)(void *)buf;
	uint8_t lane = (uint8_t)(pick_below(p, 2) ? CORE_LANE_TCP : pick_below(p, BED_RAILS));
	struct core_ctrl c = {.type = 1 + pick_below(p, 9), .lane = (uint8_t)pick_below(p, 6), .reason = pick_byte(p) & 15,
		.flags = pick_byte(p), .count = pick_number(p), .token = pick_byte(p), .psn = pick_byte(p)};
	uint32_t len;

	memset(buf, 0, sizeof(buf));
	*f = (struct wire_frame){.type = (uint8_t)(1 + pick_below(p, 5)), .lane = lane, .flags = pick_byte(p) & 1,
		.src_node = 1, .lane_gen = l->core.lane[lane].gen, .seq = l->core.next + pick_below(p, 3) - 1u};
	f->incarnation = l->n->incarnation + !pick_often(p);
	core_link_header(&l->core, &f->ack, &f->limit);
	if (!pick_often(p))
		f->ack = pick_number(p);
	if (!pick_often(p))
		f->limit = pick_number(p);
	if (!pick_often(p))
		f->lane_gen += pick_below(p, 3) - 1u;
	if (!pick_often(p))
		f->seq = pick_number(p);
	c.gen = l->core.lane[c.lane < CORE_LANES ? c.lane : 0].gen + pick_below(p, 3) - 1u;
	memcpy(c.blob, l->core.lane[c.lane % BED_RAILS].remote.blob, sizeof(c.blob));
	f->len = f->type == WIRE_FRAME_CTRL ? sizeof(c) : (uint32_t)pick_number(p) % 200;
	if (f->type == WIRE_FRAME_CTRL)
		memcpy(buf + sizeof(*f), &c, sizeof(c));
	else
		pick_bytes(p, buf + sizeof(*f), f->len);
	wire_frame_seal(f, buf + sizeof(*f));
	len = (uint32_t)sizeof(*f) + f->len;
	if (!pick_often(p))
		pick_bytes(p, buf, 8);
	bed_say("peer: frame of type %u on lane %u, number %llx, control %u", f->type, lane, (unsigned long long)f->seq,
		c.type);
	if (lane == CORE_LANE_TCP && tcp_can_send(l))
		tcp_send(l, buf, len);
	else if (lane < BED_RAILS && l->rdma[lane] && len <= 256)
		verbs_lane_send_copy(l->rdma[lane], buf, len, NODE_COOKIE_OTHER);
}

/* --- the ranks under test, as they should be -------------------------------------------------------------------- */

static void request(struct pick *p, struct bed_rank *r)
{
	struct wire_rma w = {.key = far.key[0], .off = pick_byte(p), .laddr = BED_MEM, .len = pick_number(p) & 0xffff,
		.flags = pick_byte(p) & (WIRE_RMA_GET | WIRE_RMA_REPLAY)};
	struct wire_rts rts = {.key = r->key[0], .addr = BED_MEM};
	struct wire_rec rec = {.type = WIRE_REC_RMA, .op = 1 + pick_below(p, 8), .dst_node = 1, .dst_ep = far.slot,
		.dst_epoch = far.epoch, .len = sizeof(w)};
	struct shm_dereg d = {.m = {.type = SHM_MSG_DEREG, .abi = SHM_ABI}, .key = r->key[0]};

	if (pick_below(p, 3)) {
		w.lregion = r->key[0].region;
		w.lgen = r->key[0].gen;
	}
	switch (pick_below(p, 8)) {
	case 0:
		rec.type = WIRE_REC_RTS;
		rec.arg = BED_MEM_LEN;
		rec.len = sizeof(rts);
		bed_rank_submit(r, &rec, &rts);
		break;
	case 1:
		bed_rank_send(r, &d, sizeof(d), -1);
		break;
	case 2:
		bed_rank_region(r);
		break;
	case 3: /* dies, and is there again */
		bed_rank_close(r, pick_below(p, 2));
		bed_rank_connect(r, 0);
		bed_rank_attach(r);
		bed_rank_region(r);
		break;
	default:
		bed_rank_submit(r, &rec, &w);
		break;
	}
}

static void step(struct pick *p)
{
	static const uint32_t ms[] = {1, 10, 60, 250, 1100, 3100};
	uint8_t what = pick_byte(p);
	struct link *l = bed.n[1]->link[0];

	switch (what & 15) {
	case 0:
	case 1:
	case 2:
		request(p, &rank[(what >> 4) % RANKS]);
		break;
	case 3:
		bed_turn(1);
		break;
	case 4:
		bed_turn(0);
		break;
	case 5:
		bed_turns(1 + (what >> 6));
		break;
	case 6:
		bed_pass(ms[(what >> 4) % 6] * BED_MS);
		bed_turns(1);
		break;
	case 7:
		if (what & 16)
			bed_verbs_hold(what >> 7, (what >> 6) & 1, (what >> 5) & 1);
		else
			bed_verbs_rail(what >> 7, (what >> 6) & 1, (what >> 5) & 1, false);
		break;
	case 8:
		bed.vm_refused = what & 16;
		break;
	case 9:
	case 10:
		frame(p, l);
		break;
	default:
		record(p, l);
		break;
	}
	for (unsigned i = 0; i < RANKS; i++) {
		bed_rank_take(&rank[i], true);
		bed_rank_answers(&rank[i]);
	}
}

/* A message from the first rank to the second, which is on the same node. */
static void must_work(void)
{
	struct wire_rec msg = {.type = WIRE_REC_MSG, .tag = 4711, .dst_ep = rank[1].slot, .dst_epoch = rank[1].epoch};

	rank[1].msg.tag = 0;
	bed_rank_submit(&rank[0], &msg, "");
	bed_turns(3);
	bed_rank_take(&rank[1], true);
	bed_must(rank[1].msg.tag == 4711, "another rank's message arrives");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pick p = {data, size};

	bed_open(true);
	for (unsigned i = 0; i < RANKS; i++) {
		bed_rank_connect(&rank[i], 0);
		bed_rank_attach(&rank[i]);
		bed_rank_region(&rank[i]);
	}
	bed_rank_connect(&far, 1);
	bed_rank_attach(&far);
	bed_rank_region(&far);
	for (int i = 0; i < 200 && p.left; i++)
		step(&p);
	bed.vm_refused = false;
	bed_rank_close(&far, false);
	bed_stop(1);
	bed_turns(2);
	for (unsigned i = 0; i < RANKS; i++)
		bed_rank_take(&rank[i], true);
	must_work();
	link_lost(bed.n[0]->link[1]);
	for (unsigned i = 0; i < RANKS; i++)
		bed_rank_close(&rank[i], i);
	bed_settle();
	bed_must_be_empty(0);
	bed_close();
	return 0;
}
