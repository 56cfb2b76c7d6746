/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that are hostile, or dying: up to four of them, on two daemons, in steps. They attach, ask on the
 * control socket, submit records of any kind with fields that make sense or do not, scribble over their rings,
 * answer what they are asked or something else, and end with or without a good-bye, between any two turns of
 * the daemons; ports of the nodes fail meanwhile. Two honest ranks must not notice, and nothing may be left.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bed_rank.h"

#define RANKS 4u

static struct bed_rank rank[RANKS + BED_DAEMONS], *const honest = rank + RANKS;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct bed_rank *somebody(struct pick *p)
{
	return &rank[pick_below(p, RANKS + BED_DAEMONS)];
}

static struct wire_key some_key(struct pick *p, const struct bed_rank *of)
{
	uint32_t i = pick_below(p, BED_KEYS + 2);

	if (i < BED_KEYS)
		return of->key[i % (of->keys_n && of->keys_n < BED_KEYS ? of->keys_n : BED_KEYS)];
	return wire_key_unpack(pick_number(p));
}

/* --- the control socket ------------------------------------------------------------------------------- */

union message {
	struct shm_msg m;
	struct shm_attach attach;
	struct shm_lend lend;
	struct shm_reg reg;
	struct shm_dereg dereg;
	struct shm_alloc alloc;
	struct shm_eager eager;
	struct shm_witness witness;
	struct shm_place place;
	struct shm_where where;
	struct shm_monitor monitor;
	uint8_t room[1024];
};

static size_t message_fill(struct pick *p, const struct bed_rank *r, union message *u)
{
	static const char *const nodes[] = {"127.0.0.1/2,127.0.0.2/2", "127.0.0.1,127.0.0.2,127.0.0.3",
		"127.0.0.2/1,127.0.0.1/1,127.0.0.3/1", "127.0.0.1", "127.0.0.1,,a", ""};
	const struct node_opts *o = &bed.n[r->node]->o;

	u->m.type = 1 + pick_below(p, 18);
	u->m.abi = pick_often(p) ? SHM_ABI : SHM_ABI + 1;
	switch (u->m.type) {
	case SHM_MSG_ATTACH:
		u->attach.job = o->job;
		u->attach.step = pick_below(p, 3);
		u->attach.rank = pick_below(p, 4);
		u->attach.ranks = pick_below(p, 8);
		u->attach.pid = (uint32_t)getpid();
		u->attach.rx_size = pick_often(p) ? 0 : pick_number(p) & 0xffffff;
		return sizeof(u->attach);
	case SHM_MSG_LEND:
		u->lend.addr = pick_often(p) ? BED_MEM : pick_number(p);
		u->lend.len = pick_often(p) ? BED_MEM_LEN : pick_number(p);
		u->lend.key = pick_often(p) ? (struct wire_key){0, 0} : some_key(p, r);
		return sizeof(u->lend);
	case SHM_MSG_REG:
		u->reg.key = some_key(p, r);
		u->reg.ndev = pick_often(p) ? BED_RAILS : pick_byte(p);
		u->reg.ok = pick_often(p) ? 3 : pick_byte(p);
		pick_bytes(p, u->reg.mr_handle, sizeof(u->reg.mr_handle));
		return sizeof(u->reg);
	case SHM_MSG_DEREG:
		u->dereg.key = some_key(p, r);
		return sizeof(u->dereg);
	case SHM_MSG_ALLOC:
		u->alloc.len = pick_often(p) ? 4096 : pick_number(p) & 0xfffffff;
		return sizeof(u->alloc);
	case SHM_MSG_EAGER:
		u->eager.rec = (struct shm_node_record){.version = SHM_RECORD_VERSION, .node = (uint16_t)pick_below(p, 4),
			.job = o->job, .ctrl = bed.n[!r->node]->addr};
		u->eager.rec.crc = wire_crc32c(0, &u->eager.rec, offsetof(struct shm_node_record, crc));
		u->eager.last = pick_below(p, 2);
		u->eager.timeout_ms = pick_byte(p);
		return sizeof(u->eager);
	case SHM_MSG_MONITOR:
		u->monitor.step = pick_below(p, 3);
		u->monitor.spares = pick_below(p, 3);
		strcpy((char *)u->room + sizeof(u->monitor), nodes[pick_below(p, sizeof(nodes) / sizeof(nodes[0]))]);
		u->monitor.len = (uint32_t)strlen((char *)u->room + sizeof(u->monitor)) + 1;
		return sizeof(u->monitor) + u->monitor.len;
	case SHM_MSG_WITNESS:
		u->witness.step = pick_below(p, 3);
		u->witness.down = pick_below(p, 2);
		strcpy(u->witness.node, "127.0.0.2");
		return sizeof(u->witness);
	case SHM_MSG_PLACE:
		u->place.step = pick_below(p, 3);
		u->place.task = pick_below(p, 8);
		return sizeof(u->place);
	case SHM_MSG_WHERE:
		u->where.rank = pick_often(p) ? pick_below(p, 8) : (uint32_t)pick_number(p);
		return sizeof(u->where);
	default:
		return sizeof(u->m);
	}
}

static void ask(struct pick *p, struct bed_rank *r)
{
	static union message u;
	size_t len;
	int fd = -1;

	memset(&u, 0, sizeof(u));
	len = message_fill(p, r, &u);
	if (!pick_often(p))
		len = pick_number(p) % sizeof(u);
	if (!pick_often(p))
		fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	bed_rank_send(r, &u, len, fd);
	if (fd >= 0)
		close(fd);
}

/* --- the submission ring -------------------------------------------------------------------------------- */

static uint32_t payload_fill(struct pick *p, struct bed_rank *r, struct wire_rec *rec, uint8_t *to)
{
	const struct bed_rank *of = somebody(p);
	struct wire_key own = some_key(p, r), far = some_key(p, of);
	struct wire_rts rts = {.key = own, .addr = BED_MEM + pick_number(p), .rail_ok = pick_byte(p)};
	struct wire_get get = {.key = far, .raddr = BED_MEM, .laddr = BED_MEM, .len = pick_number(p),
		.lregion = own.region, .lgen = own.gen};
	struct wire_rma rma = {.key = far, .off = pick_number(p), .laddr = BED_MEM, .len = pick_number(p),
		.flags = pick_byte(p) & 7};
	struct wire_atomic atom = {.op = (uint8_t)pick_below(p, 5), .size = pick_often(p) ? 8 : pick_byte(p)};

	if (pick_byte(p) & 1) {
		rma.lregion = own.region;
		rma.lgen = own.gen;
	}
	switch (rec->type) {
	case WIRE_REC_RTS:
		rec->arg = pick_number(p);
		memcpy(to, &rts, sizeof(rts));
		return sizeof(rts);
	case WIRE_REC_GET:
		rec->tag = pick_below(p, 8); /* op of an RTS */
		memcpy(to, &get, sizeof(get));
		return sizeof(get);
	case WIRE_REC_RMA:
		if (rma.flags & WIRE_RMA_INLINE)
			rma.len %= WIRE_RMA_INLINE_MAX + 1;
		memcpy(to, &rma, sizeof(rma));
		return (uint32_t)(sizeof(rma) + (rma.flags & WIRE_RMA_INLINE ? rma.len : 0));
	case WIRE_REC_RATOM:
		rec->data = wire_key_pack(far);
		memcpy(to, &atom, sizeof(atom));
		return sizeof(atom);
	case WIRE_REC_PEER:
		memcpy(to, &bed.n[pick_below(p, 2)]->addr, sizeof(struct wire_addr));
		return sizeof(struct wire_addr);
	case WIRE_REC_ACCESSED:
		rec->op = r->access.op;
		r->access.type = 0;
		rec->arg = pick_often(p) ? 0 : pick_number(p);
		return r->access.flags & WIRE_REC_F_WRITE ? 0 : (uint32_t)r->access.arg;
	default:
		return (uint32_t)pick_number(p) % (WIRE_REC_PAYLOAD_MAX + 1);
	}
}

static void submit(struct pick *p, struct bed_rank *r)
{
	static const uint8_t likely[] = {WIRE_REC_RMA, WIRE_REC_RMA, WIRE_REC_RMA, WIRE_REC_MSG, WIRE_REC_RTS,
		WIRE_REC_PUSH, WIRE_REC_CTS, WIRE_REC_FIN, WIRE_REC_CREDIT, WIRE_REC_CANCEL, WIRE_REC_RATOM, WIRE_REC_GET,
		WIRE_REC_PEER, WIRE_REC_ACCESSED};
	static const uint8_t times[] = {1, 1, 1, 1, 2, 4, 8, 40};
	static uint8_t payload[WIRE_REC_PAYLOAD_MAX];
	const struct bed_rank *to = somebody(p);
	struct wire_rec rec = {.type = pick_often(p) ? likely[pick_below(p, sizeof(likely))] : pick_below(p, 40),
		.flags = (uint16_t)pick_byte(p), .dst_node = (uint16_t)to->node, .dst_ep = to->slot, .dst_epoch = to->epoch,
		.tag = pick_number(p), .op = pick_below(p, 8), .arg = pick_number(p)};

	pick_bytes(p, payload, 16);
	rec.len = payload_fill(p, r, &rec, payload);
	if (rec.len > sizeof(payload))
		rec.len = sizeof(payload);
	if (!pick_often(p)) {
		rec.dst_node = (uint16_t)pick_number(p);
		rec.dst_ep = (uint16_t)pick_number(p);
	}
	for (uint8_t n = times[pick_below(p, sizeof(times))]; n; n--)
		bed_rank_submit(r, &rec, payload);
	if (!pick_often(p))
		bed_rank_close(r, false);
}

static void scribble(struct pick *p, struct bed_rank *r)
{
	uint64_t v = pick_number(p);

	if (!r->shm)
		return;
	r->spoilt = true;
	switch (pick_below(p, 5)) {
	case 0:
		atomic_store(&r->shm->tx.tail, v);
		break;
	case 1:
		atomic_store(&r->shm->rx.head, v);
		break;
	case 2:
		atomic_store(&r->shm->tx.tail, atomic_load(&r->shm->tx.tail) + v);
		break;
	case 3:
		pick_bytes(p, r->tx.base + v % r->tx.size / 2, 64);
		break;
	default:
		pick_bytes(p, r->shm, sizeof(*r->shm) - 2 * sizeof(struct shm_ring_ctl));
		break;
	}
}

/* --- what happens around them --------------------------------------------------------------------------- */

static void port(struct pick *p)
{
	unsigned node = pick_below(p, BED_DAEMONS), rail = pick_below(p, BED_RAILS);

	bed_say("rail %u of node %u", rail, node);
	switch (pick_below(p, 6)) {
	case 0:
		bed_verbs_rail(node, rail, false, false);
		break;
	case 1:
		bed_verbs_rail(node, rail, true, pick_below(p, 2));
		break;
	case 2:
	case 3:
		bed_verbs_hold(node, rail, pick_below(p, 2));
		break;
	case 4:
		bed_verbs_refuse(node);
		break;
	default:
		bed.vm_refused = pick_below(p, 2);
		break;
	}
}

static void step(struct pick *p)
{
	static const uint32_t ms[] = {1, 10, 60, 250, 1100, 3100};
	uint8_t what = pick_byte(p);
	struct bed_rank *r = &rank[(what >> 4) % RANKS];
	bool connects = r->sock < 0 && (what & 15) < 10;

	if (connects)
		bed_rank_connect(r, (what >> 6) % BED_DAEMONS);
	if (connects && (what & 15) > 2)
		bed_rank_attach(r);
	switch (what & 15) {
	case 0:
	case 1:
		bed_rank_close(r, pick_below(p, 2));
		break;
	case 2:
	case 3:
		bed_rank_region(r);
		break;
	case 4:
	case 5:
		ask(p, r);
		break;
	case 6:
	case 7:
	case 8:
	case 9:
		submit(p, r);
		break;
	case 10:
		bed_rank_take(r, pick_often(p));
		bed_rank_answers(r);
		break;
	case 11:
		bed_turn(pick_below(p, BED_DAEMONS));
		break;
	case 12:
		bed_turns(1 + pick_below(p, 4));
		break;
	case 13:
		bed_pass(ms[pick_below(p, sizeof(ms) / sizeof(ms[0]))] * BED_MS);
		bed_turns(1);
		break;
	case 14:
		port(p);
		break;
	default:
		scribble(p, r);
		break;
	}
}

static void heal(void)
{
	for (unsigned i = 0; i < BED_DAEMONS; i++)
		for (unsigned k = 0; k < BED_RAILS; k++) {
			bed_verbs_rail(i, k, true, false);
			bed_verbs_hold(i, k, false);
		}
	bed.vm_refused = false;
}

/* Once, and whatever was asked, where those that are left do as they should from now on. */
static void each_request_must_end(void)
{
	for (unsigned i = 0; i < RANKS; i++) {
		bed_rank_answers(&rank[i]);
		if (rank[i].spoilt || !rank[i].shm)
			bed_rank_close(&rank[i], false);
	}
	if (!bed_rank_settle(rank, RANKS + BED_DAEMONS))
		return;
	for (unsigned i = 0; i < RANKS && bed_whole(); i++)
		bed_must(rank[i].spoilt || rank[i].got[WIRE_REC_RMA_DONE] == rank[i].asked, "each request ends, once");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pick p = {data, size};

	for (unsigned i = 0; i < RANKS; i++)
		rank[i].sock = -1;
	bed_open(true);
	bed_honest_open(honest);
	for (int i = 0; i < 200 && p.left; i++) {
		step(&p);
		bed_honest_turn(honest);
	}
	heal();
	each_request_must_end();
	for (unsigned i = 0; i < RANKS; i++)
		bed_rank_close(&rank[i], false);
	bed_settle();
	bed_honest_turn(honest);
	bed_honest_must_work(honest);
	for (unsigned i = 0; i < BED_DAEMONS; i++)
		bed_rank_close(&honest[i], true);
	bed_settle();
	for (unsigned i = 0; i < BED_DAEMONS; i++)
		bed_must_be_empty(i);
	bed_close();
	return 0;
}
