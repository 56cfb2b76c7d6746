/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided requests: each end submits pieces of puts and gets, the ledger (core/rma.h) brings them
 * through, and the target counts what executed. They go to regions of the peer whose keys are asked for, or
 * fetch messages that it has announced (key.c). Where no rail is left for long a piece goes by frames, which the
 * session makes exactly once; the peer executes it later.
 */
#include "sim.h"

#include <stddef.h>

#include "core/psn.h"

#define MTU	   4096u
#define FRAMES_NS  (300 * MS)

uint32_t sim_rma_psn0(uint32_t uid)
{
	/* often just before the numbers wrap */
	return uid % 3 ? CORE_PSN_MASK - uid * 7 % 200 : uid * 2654435761u & CORE_PSN_MASK;
}

static uint8_t all_rails(const struct sim *s)
{
	return (uint8_t)((1u << s->cfg.rails) - 1);
}

static void ended(struct sim *s, struct sim_end *e, uint32_t id, enum sim_rma_how how)
{
	uint16_t region = e->rma_region[id];

	if (e->rma_state[id] == SIM_RMA_NONE || e->rma_state[id] == SIM_RMA_ENDED)
		sim_fail(s, "end %d: request %u ended twice", e->id, id);
	if (how == SIM_RMA_REFUSED && s->end[e->id ^ 1].reg[region].state == SIM_REGION_OPEN)
		sim_fail(s, "end %d: request %u was refused, and region %u is open", e->id, id, region);
	e->rma_how[id] = (uint8_t)how;
	e->rma_state[id] = SIM_RMA_ENDED;
	e->rma_ended++;
	if (core_import_unuse(&e->imp[region].m))
		sim_key_send(s, e, (struct sim_rec){.type = SIM_REC_REVOKED, .region = region});
	if (e->rma_message[id])
		sim_key_send(s, e, (struct sim_rec){.type = SIM_REC_FIN, .region = region});
}

/* The put writes memory, by whatever way. */
void sim_rma_executed(struct sim *s, struct sim_end *e, uint32_t id)
{
	if (e->rma_state[id] == SIM_RMA_ENDED)
		sim_fail(s, "end %d: put %u executed after it had ended", e->id, id);
	else if (++e->rma_runs[id] > 1 && !e->rma_doubt[id])
		sim_fail(s, "end %d: put %u executed twice", e->id, id);
}

void sim_rma_framed(struct sim *s, struct sim_end *e, uint32_t id, bool ok)
{
	ended(s, e, id, ok ? SIM_RMA_OK : SIM_RMA_REFUSED);
}

bool sim_rma_caught(const struct sim *s, int node, uint8_t lane)
{
	return s->lie[node][lane] && s->now >= s->caught_at[node][lane];
}

static void word_written(struct sim *s, struct sim_end *e, struct sim_qp *peer, uint64_t number)
{
	if (number <= peer->word)
		sim_fail(s, "end %d: ledger word goes from %llu to %llu", e->id,
			(unsigned long long)peer->word, (unsigned long long)number);
	peer->word = number;
	for (uint32_t id = 0; id < e->rma_made; id++)
		if (e->rma_ran[id] == peer->uid)
			e->rma_cover[id] = peer->uid;
}

/* A put, get or ledger write has arrived whole at e's peer. */
void sim_rma_run(struct sim *s, struct sim_end *e, uint8_t lane, const struct sim_msg *m)
{
	struct sim_qp *peer = &s->end[e->id ^ 1].qp[lane];
	uint32_t id = (uint32_t)m->seq;

	if (m->type == SIM_WORD)
		word_written(s, e, peer, m->seq);
	if (m->type != SIM_PUT)
		return;
	e->rma_ran[id] = peer->uid;
	sim_rma_executed(s, e, id);
}

static void end(struct sim *s, struct sim_end *e, int piece, enum core_piece_end how)
{
	uint32_t id = e->piece_id[piece];

	switch (how) {
	case CORE_PIECE_EXECUTED:
		if (!e->rma_get[id] && !e->rma_runs[id])
			sim_fail(s, "end %d: put %u reported executed, and was not", e->id, id);
		ended(s, e, id, SIM_RMA_OK);
		break;
	case CORE_PIECE_AMBIGUOUS:
	case CORE_PIECE_REFUSED:
		ended(s, e, id, SIM_RMA_AMBIGUOUS);
		break;
	default:
		break;
	}
}

void sim_rma_done(struct sim *s, struct sim_end *e, const struct sim_msg *m, bool flushed)
{
	if (m->type == SIM_WORD)
		return;
	end(s, e, m->piece, core_rma_completed(&e->rma, &e->link, m->piece,
			flushed ? CORE_PIECE_FLUSHED : CORE_PIECE_OK, s->now));
}

static uint32_t rq_psn(struct sim *s, const struct sim_end *e, uint8_t lane)
{
	const struct sim_qp *q = &e->qp[lane];

	/* before it is caught nobody could tell the lie */
	if (!sim_rma_caught(s, e->node, lane))
		return q->rq_psn;
	switch (s->lie[e->node][lane]) {
	case SIM_LIE_RANDOM:
		return (uint32_t)sim_below(s, CORE_PSN_MASK + 1);
	case SIM_LIE_STUCK:
		return sim_rma_psn0(q->remote);
	default:
		return core_psn_add(q->rq_psn, 1 + (uint32_t)sim_below(s, 20));
	}
}

static void report(struct sim *s, struct sim_end *e, uint8_t lane)
{
	/* without a flush of the marker nobody knows whether it has stopped: it is destroyed, and tells nothing */
	bool gone = sim_chance(s, s->honest ? 0 : 10) || !e->qp[lane].rx;
	uint32_t number;
	enum core_told told = core_tell(!gone && !sim_rma_caught(s, e->node, lane),
		rq_psn(s, e, lane), e->qp[lane].word, &number);

	core_link_report(&e->link, lane, e->qp[lane].gen, told, number);
}

/* The queue pair is stopped: what was acknowledged is told, the rest comes back flushed. */
void sim_rma_fenced(struct sim *s, struct sim_end *e, uint8_t lane, uint32_t gen)
{
	struct sim_qp *q = &e->qp[lane];

	while (q->gen == gen && q->done < q->snd) {
		const struct sim_msg *m = &q->out[q->done % SIM_RING];

		if (m->type >= SIM_PUT)
			sim_rma_done(s, e, m, q->done >= q->cmp);
		q->done++;
	}
	if (q->gen == gen)
		report(s, e, lane);
	core_link_fenced(&e->link, lane, gen, s->now);
	core_rma_fenced(&e->rma, &e->link, lane, gen, s->now);
}

static void ask(struct sim *s, struct sim_end *e, uint16_t region)
{
	sim_key_send(s, e, (struct sim_rec){.type = SIM_REC_ASK, .region = region});
}

static void check_key(struct sim *s, struct sim_end *e, uint16_t region)
{
	if (core_import_check(&e->imp[region].m))
		ask(s, e, region);
}

/* The peer could not tell of this put: no ledger write behind it can have executed. */
static void doubt(struct sim *s, struct sim_end *e, const struct core_act *a, uint32_t id, bool again)
{
	if (e->rma_cover[id] && e->rma_cover[id] == e->qp[a->lane].remote && e->qp[a->lane].gen == a->gen)
		sim_fail(s, "end %d: put %u is in doubt, and a ledger write came behind it", e->id, id);
	if (again && !e->rma_replay[id])
		sim_fail(s, "end %d: put %u runs again, and may have executed", e->id, id);
	e->rma_doubt[id] = true;
}

void sim_rma_report(struct sim *s, struct sim_end *e, const struct core_act *a)
{
	enum core_piece_end how;
	int piece;

	sim_trace(s, e, "report of lane %d gen %u: %s %06x", a->lane, a->gen,
		a->told == CORE_TOLD_PSN ? "expects psn" : a->told ? "word" : "nothing,", a->number);
	for (;;) {
		piece = core_rma_settle(&e->rma, a->lane, a->gen, a->told, a->number, s->now, &how);
		if (piece < 0)
			return;
		if (a->told != CORE_TOLD_PSN && how != CORE_PIECE_EXECUTED)
			doubt(s, e, a, e->piece_id[piece], how == CORE_PIECE_GOES_ON);
		if (how == CORE_PIECE_GOES_ON && !e->rma_message[e->piece_id[piece]])
			check_key(s, e, e->rma_region[e->piece_id[piece]]);
		end(s, e, piece, how);
	}
}

/* A message that the peer has announced; NULL: none. */
static struct sim_rec *message(struct sim *s, struct sim_end *e)
{
	struct sim_rec *a = &e->ann[sim_below(s, SIM_ANN)];

	return a->type ? a : NULL;
}

static void fetch(struct sim *s, struct sim_end *e, uint32_t id, struct sim_rec *a)
{
	e->rma_message[id] = e->rma_get[id] = true;
	e->rma_region[id] = a->region;
	e->rma_addr[id] = a->addr;
	e->rma_rkey[id] = a->rkey;
	e->rma_len[id] = (uint32_t)a->len;
	a->type = SIM_REC_NONE;
	if (core_import_message(&e->imp[e->rma_region[id]].m))
		return;
	/* its sender is gone, or closes the region */
	e->imp[e->rma_region[id]].m.uses++; /* ended() takes it back */
	ended(s, e, id, SIM_RMA_REFUSED);
}

static void request(struct sim *s, struct sim_end *e, uint32_t id)
{
	e->rma_get[id] = sim_chance(s, 30);
	e->rma_len[id] = (uint32_t)sim_below(s, sim_chance(s, 50) ? 200 : 10 * MTU);
	e->rma_addr[id] = sim_chance(s, 30) ? 0 : sim_below(s, 1 << 19);
	if (core_import_use(&e->imp[e->rma_region[id]].m))
		ask(s, e, e->rma_region[id]);
}

static void submit(struct sim *s, struct sim_end *e)
{
	while (e->rma_made < e->rma_goal && s->now >= e->rma_at) {
		struct sim_rec *a = sim_chance(s, 50) ? message(s, e) : NULL;
		uint32_t id = e->rma_made;

		if (!a && !sim_key_offer(s, &s->end[e->id ^ 1], &e->rma_region[id]))
			break;
		e->rma_replay[id] = sim_chance(s, 50);
		e->rma_state[id] = SIM_RMA_WAITS;
		e->rma_made++;
		if (a)
			fetch(s, e, id, a);
		else
			request(s, e, id);
		if (e->rma_state[id] == SIM_RMA_WAITS)
			e->rma_wait[e->rma_wait_n++] = id;
		if (sim_chance(s, 30))
			e->rma_at = s->now + sim_below(s, 2 * s->heal_at / (e->rma_goal + 1) * 3);
	}
	for (uint32_t i = 0; i < SIM_ANN && e->rma_made == e->rma_goal; i++)
		if (e->ann[i].type) { /* had otherwise */
			sim_key_send(s, e, (struct sim_rec){.type = SIM_REC_FIN, .region = e->ann[i].region});
			e->ann[i].type = SIM_REC_NONE;
		}
}

/* What the key of the request says now; a message brought its own. */
static enum core_import_state key_state(const struct sim_end *e, uint32_t id)
{
	const struct core_import *m = &e->imp[e->rma_region[id]].m;

	return e->rma_message[id] && !m->revoked ? CORE_IMPORT_GOOD : m->state;
}

/* Those that wait, in their order, as far as there are pieces. */
static void begin(struct sim *s, struct sim_end *e)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < e->rma_wait_n; i++) {
		uint32_t id = e->rma_wait[i];
		int piece = -1;

		if (key_state(e, id) == CORE_IMPORT_BAD) {
			ended(s, e, id, SIM_RMA_REFUSED);
			continue;
		}
		if (key_state(e, id) == CORE_IMPORT_GOOD)
			piece = core_rma_submit(&e->rma, e->rma_get[id] ? CORE_GET : CORE_PUT, e->rma_len[id],
				all_rails(s), e->rma_replay[id], s->now);
		if (piece < 0) {
			e->rma_wait[n++] = id;
			continue;
		}
		e->piece_id[piece] = id;
		e->rma_state[id] = SIM_RMA_MADE;
	}
	e->rma_wait_n = n;
}

/* Pieces that are not posted: their keys may have changed. */
static void review(struct sim *s, struct sim_end *e)
{
	for (uint16_t i = e->rma.head, next; i != CORE_PIECES; i = next) {
		enum core_import_state key = key_state(e, e->piece_id[i]);

		next = e->rma.piece[i].next;
		core_rma_rails(&e->rma, i, key == CORE_IMPORT_GOOD ? all_rails(s) : 0);
		if (key != CORE_IMPORT_BAD)
			continue;
		core_rma_drop(&e->rma, i);
		ended(s, e, e->piece_id[i], SIM_RMA_REFUSED);
	}
}

static void mark(struct sim *s, struct sim_end *e, uint8_t lane, bool turn_ends)
{
	struct sim_qp *q = &e->qp[lane];
	uint64_t number = q->state == SIM_QP_READY && q->want_word ?
		core_rma_mark(&e->rma, lane, turn_ends) : 0;

	if (!number || q->snd - q->done >= SIM_RING || sim_chance(s, 5)) /* no room: asked for again */
		return;
	core_rma_marked(&e->rma, lane);
	sim_qp_post(s, e, lane, (struct sim_msg){.type = SIM_WORD, .gen = q->gen, .seq = number,
			.packets = 1});
}

static void post(struct sim *s, struct sim_end *e)
{
	struct core_rma_room room[CORE_RAILS_MAX] = {{0}};
	uint8_t lane;
	int piece;

	for (uint8_t i = 0; i < s->cfg.rails; i++) {
		const struct sim_qp *q = &e->qp[i];
		uint32_t used = q->snd - q->done;

		room[i].reads = s->reads;
		room[i].bytes = s->bulk;
		if (q->state == SIM_QP_READY && used < SIM_RING / 4)
			room[i].posts = SIM_RING / 4 - used;
	}
	while (core_rma_pick(&e->rma, &e->link, room, &piece, &lane)) {
		const struct core_piece *p = &e->rma.piece[piece];
		uint32_t id = e->piece_id[piece];
		struct sim_qp *q = &e->qp[lane];
		struct sim_msg m = {.type = p->verb == CORE_GET ? SIM_GET : SIM_PUT,
			.gen = e->link.lane[lane].gen, .seq = id, .piece = (uint16_t)piece,
			.packets = core_psn_packets(p->len, MTU), .rkey = e->rma_rkey[id],
			.addr = e->rma_addr[id]};

		if (!e->rma_message[id]) {
			m.rkey = e->imp[e->rma_region[id]].rkey;
			m.addr += e->imp[e->rma_region[id]].base;
		}

		if (q->state != SIM_QP_READY || q->gen != m.gen) {
			sim_fail(s, "end %d lane %d: a piece for generation %u, which is not there", e->id,
				lane, m.gen);
			return;
		}
		core_rma_posted(&e->rma, &e->link, piece, lane,
			core_psn_add(q->sq_psn, m.packets - 1), s->now);
		sim_qp_post(s, e, lane, m);
		room[lane].posts--;
		mark(s, e, lane, false);
	}
	for (uint8_t i = 0; i < s->cfg.rails; i++)
		mark(s, e, i, true);
}

static void by_frames(struct sim *s, struct sim_end *e)
{
	for (uint8_t i = 0; i < s->cfg.rails; i++)
		if (e->link.lane[i].usable)
			return;
	for (uint16_t i = e->rma.head, next; i != CORE_PIECES; i = next) {
		uint32_t id = e->piece_id[i];

		next = e->rma.piece[i].next;
		if (s->now < e->rma.piece[i].queued_at + FRAMES_NS)
			continue;
		if (key_state(e, id) != CORE_IMPORT_GOOD)
			continue;
		core_rma_drop(&e->rma, i);
		if (e->rma_get[id]) {
			ended(s, e, id, SIM_RMA_OK);
			continue;
		}
		e->rma_state[id] = SIM_RMA_FRAMED;
		sim_key_send(s, e, (struct sim_rec){.type = SIM_REC_PUT, .region = e->rma_region[id], .id = id});
	}
}

/* When the end wants to be called again on its own. */
uint64_t sim_rma_pump(struct sim *s, struct sim_end *e)
{
	submit(s, e);
	begin(s, e);
	review(s, e);
	post(s, e);
	by_frames(s, e);
	if (e->rma.head != CORE_PIECES)
		return s->now + 50 * MS;
	return e->rma_made < e->rma_goal ? (e->rma_at > s->now ? e->rma_at : s->now + MS) : CORE_NEVER;
}

void sim_rma_check(struct sim *s, const struct sim_end *e)
{
	if (!core_rma_idle(&e->rma) || e->rma.held || e->rma.head != CORE_PIECES)
		sim_fail(s, "end %d: pieces are left at rest", e->id);
	for (uint8_t i = 0; i < CORE_RAILS_MAX; i++)
		if (e->rma.lane[i].bytes || e->rma.lane[i].posts || e->rma.lane[i].reads)
			sim_fail(s, "end %d lane %d: counts of posted pieces are left at rest", e->id, i);
	for (uint32_t id = 0; id < e->rma_goal; id++)
		if (!e->rma_get[id] && !e->rma_doubt[id] && e->rma_runs[id] != (e->rma_how[id] != SIM_RMA_REFUSED))
			sim_fail(s, "end %d: put %u executed %d times", e->id, id, e->rma_runs[id]);
}
