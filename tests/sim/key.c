/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions of an end, which its peer puts to and gets from, and their keys: core/key.h driven as by the daemon's
 * key.c and region.c. Ranks open regions and close them, or are killed; messages are announced from the
 * middle of one. What the ends say to each other rides on numbered frames. The device hands the rkey and the
 * address of a region out again at once when it is gone: what comes late lands in the next one, and is seen.
 */
#include "sim.h"

#include <string.h>

#define LEN	   (1u << 20)
#define REVOKE_NS  SEC
#define CALM_NS	   (10 * SEC) /* where nothing may die an answer takes as long as what is posted */
#define LINGER_NS  (300 * MS)
#define EXECUTE_NS (20 * MS) /* a put as frames, by the owner's library, at most */

static struct sim_end *other(struct sim *s, const struct sim_end *e)
{
	return &s->end[e->id ^ 1];
}

void sim_key_setup(struct sim *s, struct sim_end *e)
{
	e->reg_goal = 1 + (uint32_t)sim_below(s, SIM_REGIONS);
	for (uint32_t i = 0; i < SIM_REGIONS; i++)
		e->reg[i].x = (struct core_export){.list = e->reg[i].importer, .room = 1};
}

/* --- records ------------------------------------------------------------------------------------------ */

uint32_t sim_key_waiting(const struct sim_end *e)
{
	return e->rec_tail - e->rec_head;
}

void sim_key_send(struct sim *s, struct sim_end *e, struct sim_rec r)
{
	if (sim_key_waiting(e) == SIM_RECS) {
		sim_fail(s, "end %d: records without end (last %u)", e->id, r.type);
		return;
	}
	e->rec[e->rec_tail++ % SIM_RECS] = r;
	e->goal++;
}

void sim_key_frame(struct sim_end *e, uint64_t seq)
{
	struct sim_rec none = {0};

	e->rec_sent[seq % CORE_SLOTS] = sim_key_waiting(e) ? e->rec[e->rec_head++ % SIM_RECS] : none;
}

/* --- the owner's side --------------------------------------------------------------------------------- */

static void rails(struct sim *s, struct sim_end *e, bool up)
{
	for (uint8_t i = 0; i < e->link.cfg.rails; i++)
		core_link_rail(&e->link, i, up && s->port[e->node][i], up ? CORE_R_NONE : CORE_R_REQUEST, s->now);
}

void sim_key_rail(struct sim *s, struct sim_end *e, uint8_t lane, uint8_t reason)
{
	core_link_rail(&e->link, lane, s->port[e->node][lane] && !e->no_rails, reason, s->now);
}

static bool rails_dead(const struct sim_end *e)
{
	for (uint8_t i = 0; i < e->link.cfg.rails; i++)
		if (e->link.lane[i].state != CORE_LANE_DOWN && e->link.lane[i].state != CORE_LANE_DEAD)
			return false;
	return true;
}

static struct sim_rec about(const struct sim_end *e, const struct sim_region *r, uint8_t type)
{
	return (struct sim_rec){.type = type, .region = (uint16_t)(r - e->reg), .rkey = r->rkey, .addr = r->base,
		.len = r->len};
}

static void open_region(struct sim *s, struct sim_end *e)
{
	struct sim_region *r = &e->reg[e->reg_n++];

	r->state = SIM_REGION_OPEN;
	r->rkey = e->rkey_free_n ? e->rkey_free[--e->rkey_free_n] : ++e->rkey_next;
	r->base = (uint64_t)r->rkey << 32;
	r->len = LEN;
	sim_trace(s, e, "region %d opens with rkey %u", (int)(r - e->reg), r->rkey);
}

/* The close returns: the memory is the rank's again, and the device may use the rkey for another. */
static void region_gone(struct sim *s, struct sim_end *e, struct sim_region *r)
{
	if (r->state == SIM_REGION_CLOSED)
		return;
	r->state = SIM_REGION_CLOSED;
	e->rkey_free[e->rkey_free_n++] = r->rkey;
	sim_trace(s, e, "region %d is gone", (int)(r - e->reg));
}

static void revoke_region(struct sim *s, struct sim_end *e, struct sim_region *r)
{
	core_export_revoke(&r->x, s->now + (s->calm ? CALM_NS : REVOKE_NS));
	for (uint32_t i = 0; i < r->x.n; i++)
		if (!r->x.list[i].down)
			sim_key_send(s, e, about(e, r, SIM_REC_REVOKE));
}

static void close_region(struct sim *s, struct sim_end *e, struct sim_region *r, bool dead)
{
	sim_trace(s, e, "region %d %s, %u importers", (int)(r - e->reg), dead ? "loses its rank" : "is closed", r->x.n);
	r->state = SIM_REGION_CLOSING;
	r->dead = dead;
	if (dead && (!r->x.n || !r->x.list[0].key)) {
		r->until = s->now + LINGER_NS;
		return;
	}
	if (dead || core_export_close(&r->x))
		revoke_region(s, e, r);
	else
		region_gone(s, e, r);
}

static void region_tick(struct sim *s, struct sim_end *e, struct sim_region *r)
{
	if (r->state != SIM_REGION_CLOSING)
		return;
	if (!r->x.revoking && s->now >= r->until) {
		if (r->x.n)
			revoke_region(s, e, r);
		else
			region_gone(s, e, r);
		return;
	}
	if (core_export_late(&r->x, s->now)) {
		sim_trace(s, e, "region %d: its importer's rails go down", (int)(r - e->reg));
		e->no_rails++;
		rails(s, e, false);
	}
	if (r->x.n && r->x.list[0].down && rails_dead(e))
		region_gone(s, e, r);
}

static void announce(struct sim *s, struct sim_end *e, struct sim_region *r)
{
	struct sim_rec m = about(e, r, SIM_REC_RTS);

	if (!core_export_add(&r->x, 0, false))
		return;
	m.addr += sim_below(s, LEN / 2);
	m.len = 1 + sim_below(s, 40000);
	r->messages++;
	e->ann_out++;
	sim_key_send(s, e, m);
}

bool sim_key_offer(struct sim *s, struct sim_end *e, uint16_t *region)
{
	/* most know of the last ones, some have an old key */
	uint32_t back = (uint32_t)sim_below(s, sim_chance(s, 90) ? SIM_OPEN : SIM_REGIONS);

	if (!e->reg_n)
		return false;
	*region = (uint16_t)(e->reg_n - 1 - back % e->reg_n);
	return true;
}

static void asked(struct sim *s, struct sim_end *e, const struct sim_rec *r)
{
	struct sim_region *g = &e->reg[r->region];
	struct sim_rec key = about(e, g, SIM_REC_KEY);

	key.ok = g->state == SIM_REGION_OPEN && core_export_add(&g->x, 0, true);
	sim_key_send(s, e, key);
}

static void revoked(struct sim *s, struct sim_end *e, const struct sim_rec *r)
{
	struct sim_region *g = &e->reg[r->region];
	bool was_down;

	if (!core_export_answered(&g->x, 0, &was_down))
		return;
	if (was_down && !--e->no_rails)
		rails(s, e, true);
	region_gone(s, e, g);
}

static void message_over(struct sim_end *e, const struct sim_rec *r)
{
	e->ann_out--;
	e->reg[r->region].messages--;
}

/* A put as frames: its library does it when it makes progress, in order; not when the region was closed. */
static void execute(struct sim *s, struct sim_end *e)
{
	struct sim_end *o = other(s, e);

	while (e->work_head != e->work_tail && s->now >= e->work[e->work_head % SIM_WORK].due) {
		struct sim_rec r = e->work[e->work_head++ % SIM_WORK];

		r.type = SIM_REC_DONE;
		r.ok = e->reg[r.region].state == SIM_REGION_OPEN;
		/* its daemon may be gone, and nobody has said so yet */
		if (r.ok && !(o->rma_state[r.id] == SIM_RMA_ENDED && o->rma_doubt[r.id]))
			sim_rma_executed(s, o, r.id);
		sim_key_send(s, e, r);
	}
}

static void rank_acts(struct sim *s, struct sim_end *e)
{
	const struct sim_end *peer = other(s, e);
	bool end = s->now >= s->heal_at && peer->rma_ended == peer->rma_goal;
	uint32_t open = 0;

	for (uint32_t i = 0; i < e->reg_n; i++) {
		struct sim_region *r = &e->reg[i];

		open += r->state == SIM_REGION_OPEN;
		if (r->state == SIM_REGION_OPEN && (end || sim_chance(s, 4))) {
			bool dead = sim_chance(s, 25);

			if (dead || !r->messages)
				close_region(s, e, r, dead);
		} else if (r->state == SIM_REGION_OPEN && !end && e->ann_out < SIM_ANN && sim_chance(s, 10)) {
			announce(s, e, r);
		}
	}
	/* requests find one as long as there are any */
	if (!end && open < SIM_OPEN && e->reg_n < e->reg_goal && (sim_chance(s, 20) || !e->reg_n))
		open_region(s, e);
	e->reg_at = s->now + 1 + sim_below(s, sim_chance(s, 50) ? 2 * MS : s->heal_at / 20);
}

/*
 * A daemon that dies takes its queue pairs with it and the registrations of its ranks. The one that comes then
 * knows no key, and its peers' requests to the former have ended.
 */
void sim_key_anew(struct sim *s, struct sim_end *e, bool itself)
{
	bool was_down;

	memset(e->imp, 0, sizeof(e->imp));
	memset(e->ann, 0, sizeof(e->ann));
	memset(e->rec_sent, 0, sizeof(e->rec_sent));
	e->rec_head = e->rec_tail;
	e->work_head = e->work_tail;
	e->ann_out = e->no_rails = 0;
	for (uint32_t i = 0; i < e->reg_n; i++) {
		struct sim_region *r = &e->reg[i];

		r->messages = 0;
		core_export_gone(&r->x, 0, &was_down);
		if (itself || r->state == SIM_REGION_CLOSING)
			region_gone(s, e, r);
	}
}

uint64_t sim_key_pump(struct sim *s, struct sim_end *e)
{
	uint64_t next = CORE_NEVER;
	bool closing = false;

	if (!other(s, e)->rma_goal)
		return next;
	execute(s, e);
	for (uint32_t i = 0; i < e->reg_n; i++)
		region_tick(s, e, &e->reg[i]);
	if (!sim_key_done(s, e) && s->now >= e->reg_at)
		rank_acts(s, e);
	for (uint32_t i = 0; i < e->reg_n; i++)
		closing |= e->reg[i].state == SIM_REGION_CLOSING;
	if (!sim_key_done(s, e))
		next = e->reg_at > s->now ? e->reg_at : s->now + MS;
	if (closing && next > s->now + 100 * MS)
		next = s->now + 100 * MS;
	if (e->work_head != e->work_tail && e->work[e->work_head % SIM_WORK].due < next)
		next = e->work[e->work_head % SIM_WORK].due;
	return next;
}

/* --- the importer's side ------------------------------------------------------------------------------ */

static void announced(struct sim *s, struct sim_end *e, const struct sim_rec *r)
{
	struct sim_import *im = &e->imp[r->region];

	/* what the message says is not what the key says: with a fault it would be taken for it */
	if (im->m.state == CORE_IMPORT_NEW) {
		im->base = r->addr;
		im->rkey = r->rkey;
	}
	for (uint32_t i = 0; i < SIM_ANN; i++)
		if (!e->ann[i].type) {
			e->ann[i] = *r;
			return;
		}
	sim_fail(s, "end %d: too many messages", e->id);
}

static void learned(struct sim_end *e, const struct sim_rec *r)
{
	struct sim_import *im = &e->imp[r->region];

	if (!core_import_learned(&im->m, r->ok))
		return;
	im->base = r->addr;
	im->rkey = r->rkey;
}

static void revoke(struct sim *s, struct sim_end *e, const struct sim_rec *r)
{
	if (core_import_revoke(&e->imp[r->region].m))
		sim_key_send(s, e, (struct sim_rec){.type = SIM_REC_REVOKED, .region = r->region});
}

void sim_key_take(struct sim *s, struct sim_end *e, uint64_t seq)
{
	struct sim_rec r = other(s, e)->rec_sent[seq % CORE_SLOTS];

	switch (r.type) {
	case SIM_REC_ASK:
		asked(s, e, &r);
		break;
	case SIM_REC_KEY:
		learned(e, &r);
		break;
	case SIM_REC_REVOKE:
		revoke(s, e, &r);
		break;
	case SIM_REC_REVOKED:
		revoked(s, e, &r);
		break;
	case SIM_REC_RTS:
		announced(s, e, &r);
		break;
	case SIM_REC_FIN:
		message_over(e, &r);
		break;
	case SIM_REC_PUT:
		r.due = s->now + sim_below(s, EXECUTE_NS);
		if (e->work_tail - e->work_head == SIM_WORK)
			sim_fail(s, "end %d: too many puts as frames", e->id);
		else
			e->work[e->work_tail++ % SIM_WORK] = r;
		break;
	case SIM_REC_DONE:
		sim_rma_framed(s, e, r.id, r.ok);
		break;
	default:
		break;
	}
}

/* --- what must hold ----------------------------------------------------------------------------------- */

/* Where the device finds the rkey, there it writes or reads. */
void sim_key_touch(struct sim *s, struct sim_end *e, const struct sim_msg *m)
{
	const struct sim_end *o = other(s, e);
	uint32_t id = (uint32_t)m->seq;
	const struct sim_region *want;

	if (m->type != SIM_PUT && m->type != SIM_GET)
		return;
	want = &o->reg[e->rma_region[id]];
	for (uint32_t i = 0; i < o->reg_n; i++) {
		const struct sim_region *r = &o->reg[i];

		if (r->rkey != m->rkey || r->state == SIM_REGION_CLOSED)
			continue;
		if (r != want)
			sim_fail(s, "end %d: request %u to region %d touches region %u", e->id, id,
				(int)(want - o->reg), i);
		else if (m->addr != (e->rma_message[id] ? 0 : r->base) + e->rma_addr[id])
			sim_fail(s, "end %d: request %u touches %llx, not offset %llx", e->id, id,
				(unsigned long long)m->addr, (unsigned long long)e->rma_addr[id]);
		return;
	}
	sim_fail(s, "end %d: request %u touches memory after region %d was closed", e->id, id,
		(int)(want - o->reg));
}

bool sim_key_done(const struct sim *s, const struct sim_end *e)
{
	const struct sim_end *peer = &s->end[e->id ^ 1];

	if (peer->rma_goal && (!e->reg_n || peer->rma_ended < peer->rma_goal))
		return false;
	for (uint32_t i = 0; i < e->reg_n; i++)
		if (e->reg[i].state != SIM_REGION_CLOSED || e->reg[i].x.n)
			return false;
	return !sim_key_waiting(e);
}

void sim_key_check(struct sim *s, const struct sim_end *e)
{
	if (e->no_rails)
		sim_fail(s, "end %d: its rails stay down after a revocation", e->id);
	for (uint32_t i = 0; i < SIM_REGIONS; i++)
		if (e->imp[i].m.uses)
			sim_fail(s, "end %d: an import of region %u is used at rest", e->id, i);
}
