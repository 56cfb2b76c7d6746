/* SPDX-License-Identifier: BSD-3-Clause */
/* Members, the log of who was removed, indices and spares. */
#include "core/view_internal.h"

#include <string.h>

void core_view_cfg_default(struct core_view_cfg *cfg)
{
	const uint64_t ms = 1000000;

	memset(cfg, 0, sizeof(*cfg));
	cfg->watch = 2;
	cfg->fanout = 4;
	cfg->hop_ns = 20 * ms;
	cfg->beat_ns = 500 * ms;
	cfg->lease_ns = 3000 * ms;
	cfg->check_ns = 150 * ms;
	cfg->report_ns = 500 * ms;
	cfg->step_ns = 100 * ms;
	cfg->pair_ns = 10000 * ms;
	cfg->silent_ns = 1000 * ms;
	cfg->grace_ns = 4000 * ms;
	cfg->start_ns = 300000 * ms;
	cfg->act_ns = 50 * ms;
	cfg->linger_ns = 10000 * ms;
	cfg->hold_ns = 20000 * ms; /* a command that asks it may take ten seconds */
}

void core_view_cfg_timeout(struct core_view_cfg *cfg, uint64_t timeout)
{
	cfg->silent_ns = timeout;
	/* One that has lost the path to a single node is heard through a third, which may have to connect first. */
	cfg->check_ns = view_max(timeout / 6, cfg->check_ns);
	cfg->beat_ns = view_max(timeout / 2, cfg->beat_ns);
	cfg->lease_ns = view_max(4 * timeout, cfg->lease_ns);
	cfg->pair_ns = view_max(8 * timeout, cfg->pair_ns);
	cfg->grace_ns = 4 * timeout;
	cfg->act_ns = view_max(timeout / 20, cfg->hop_ns);
	if (!cfg->spares)
		return;
	/* A spare waits for the end of the lost node's lease: short, with as many beats in it. */
	cfg->beat_ns = view_max(timeout / 4, cfg->hop_ns);
	cfg->lease_ns = 5 * cfg->beat_ns;
	cfg->grace_ns = cfg->lease_ns;
}

static size_t words(const struct core_view_cfg *cfg)
{
	return ((size_t)cfg->nodes + 63) / 64;
}

size_t core_view_size(const struct core_view_cfg *cfg)
{
	if (!cfg->nodes || cfg->nodes > CORE_VIEW_NODES_MAX || cfg->spares >= cfg->nodes ||
		cfg->self >= cfg->nodes || cfg->fanout < 2 || cfg->fanout > CORE_VIEW_FANOUT ||
		cfg->watch > VIEW_WATCH)
		return 0;
	return sizeof(struct core_view) + 3 * words(cfg) * sizeof(uint64_t) +
	       cfg->spares * sizeof(struct view_spare) + 2 * cfg->nodes * sizeof(uint16_t);
}

struct core_view *core_view_init(void *mem, const struct core_view_cfg *cfg, uint64_t now)
{
	struct core_view *v = mem;

	memset(mem, 0, core_view_size(cfg));
	v->cfg = *cfg;
	v->member = (uint64_t *)(v + 1);
	v->suspect = v->member + words(cfg);
	v->spoken = v->suspect + words(cfg);
	v->spare = (struct view_spare *)(v->spoken + words(cfg));
	v->log = (uint16_t *)(v->spare + cfg->spares);
	v->relays = v->log + cfg->nodes;
	for (uint32_t i = 0; i < cfg->nodes; i++)
		v->member[i / 64] |= 1ull << (i % 64);
	for (uint32_t i = 0; i < cfg->spares; i++)
		v->spare[i] = (struct view_spare){ .index = CORE_VIEW_NONE, .at = CORE_NEVER };
	v->alive = cfg->nodes;
	v->word = CORE_VIEW_NONE;
	v->beat_at = cfg->self ? now + 2 * cfg->beat_ns + view_turn(v) : now;
	v->beat_heard = now;
	v->report_at = v->patience_at = v->switch_at = CORE_NEVER;
	v->polled_at = v->began = v->woke_at = v->look_at = now;
	v->half_at = v->due_at = CORE_NEVER;
	return v;
}

bool view_set_has(const struct view_set *s, uint16_t node)
{
	for (uint8_t i = 0; i < s->n; i++)
		if (s->node[i] == node)
			return true;
	return false;
}

void view_set_add(struct view_set *s, uint16_t node)
{
	uint8_t i;

	if (s->n == CORE_VIEW_SET || view_set_has(s, node))
		return;
	for (i = s->n++; i && s->node[i - 1] > node; i--)
		s->node[i] = s->node[i - 1];
	s->node[i] = node;
}

bool view_set_same(const struct view_set *a, const struct view_set *b)
{
	return a->n == b->n && !memcmp(a->node, b->node, a->n * sizeof(a->node[0]));
}

void view_set_get(struct view_set *s, const struct core_view_msg *m)
{
	s->n = 0;
	for (uint8_t i = 0; i < m->n && i < CORE_VIEW_SET; i++)
		view_set_add(s, m->set[i]);
}

void view_set_put(struct core_view_msg *m, const struct view_set *s)
{
	m->n = s->n;
	memcpy(m->set, s->node, s->n * sizeof(s->node[0]));
}

uint16_t view_lowest(const struct core_view *v, bool trusted)
{
	for (uint16_t w = 0; w < words(&v->cfg); w++) {
		uint64_t bits = v->member[w] & ~(trusted ? v->suspect[w] : 0);

		if (bits)
			return (uint16_t)(w * 64 + __builtin_ctzll(bits));
	}
	return CORE_VIEW_NONE;
}

uint64_t view_mix(uint64_t z)
{
	z = (z + 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 29)) * 0x94d049bb133111ebull;
	return z ^ (z >> 32);
}

uint64_t view_noise(const struct core_view *v, uint64_t below)
{
	uint64_t z = ((uint64_t)v->cfg.self << 40) + ((uint64_t)v->view << 16) + v->round +
		     v->beat_seq + v->fails;

	return below ? view_mix(z) % below : 0;
}

/*
 * What this node lets those before it go first. Places far back share one interval: when all before
 * them are gone, waiting one step for each would outlast every lease.
 */
uint64_t view_turn(const struct core_view *v)
{
	uint16_t self = v->cfg.self, place = 0;

	for (uint16_t w = 0; w <= self / 64; w++) {
		uint64_t bits = v->member[w] & ~v->suspect[w];

		if (w == self / 64)
			bits &= (1ull << (self % 64)) - 1;
		place = (uint16_t)(place + __builtin_popcountll(bits));
	}
	if (place <= 8)
		return place * v->cfg.step_ns;
	return 8 * v->cfg.step_ns + view_noise(v, 16 * v->cfg.step_ns);
}

uint16_t core_view_index(const struct core_view *v, uint16_t node)
{
	const uint16_t active = (uint16_t)(v->cfg.nodes - v->cfg.spares);

	if (node >= v->cfg.nodes)
		return CORE_VIEW_NONE;
	return node < active ? node : v->spare[node - active].index;
}

uint16_t core_view_node(const struct core_view *v, uint16_t index, uint16_t *incarnation)
{
	const uint16_t active = (uint16_t)(v->cfg.nodes - v->cfg.spares);
	uint16_t node = index, inc = 0;

	for (uint16_t i = 0; i < v->cfg.spares; i++) {
		if (v->spare[i].index == index && v->spare[i].incarnation > inc) {
			inc = v->spare[i].incarnation;
			node = (uint16_t)(active + i);
		}
	}
	if (incarnation)
		*incarnation = inc;
	return index < active && view_bit(v->member, node) ? node : CORE_VIEW_NONE;
}

/* The lowest spare that waits takes the index over, once the lease of who had it has ended. */
static void take_over(struct core_view *v, uint16_t index, uint64_t now)
{
	const uint16_t active = (uint16_t)(v->cfg.nodes - v->cfg.spares);
	uint16_t inc;

	core_view_node(v, index, &inc);
	for (uint16_t i = 0; i < v->cfg.spares; i++) {
		struct view_spare *s = &v->spare[i];

		if (s->index != CORE_VIEW_NONE || !view_bit(v->member, (uint16_t)(active + i)))
			continue;
		s->index = index;
		s->incarnation = (uint16_t)(inc + 1);
		s->at = now + core_view_takeover_ns(&v->cfg);
		v->switch_at = view_min(v->switch_at, s->at);
		return;
	}
}

/* The set was decided: the next view. */
void view_install(struct core_view *v, const struct view_set *s, uint64_t now)
{
	const uint16_t active = (uint16_t)(v->cfg.nodes - v->cfg.spares);

	v->last_off = v->log_n;
	for (uint8_t i = 0; i < s->n; i++) {
		uint16_t node = s->node[i];

		v->member[node / 64] &= ~(1ull << (node % 64));
		if (view_bit(v->suspect, node))
			v->suspects--;
		v->alive--;
		if (node >= active)
			v->spare[node - active].at = CORE_NEVER;
		v->log[v->log_n++] = node | (i + 1 == s->n ? CORE_VIEW_END : 0);
	}
	for (uint8_t i = 0; i < s->n; i++)
		if (core_view_index(v, s->node[i]) != CORE_VIEW_NONE)
			take_over(v, core_view_index(v, s->node[i]), now);
	v->view++;
	v->promised = v->accepted = v->round = 0;
	v->value.n = 0;
	v->phase = CORE_VIEW_IDLE;
	v->fails = 0;
	v->propose_at = now;
	v->word = CORE_VIEW_NONE;
	v->wave[0].phase = v->wave[1].phase = CORE_VIEW_IDLE;
	view_doubt_forget(v, now);
	if (!view_bit(v->member, v->cfg.self) && !v->out) {
		v->out = v->act_removed = true;
		v->act_active = v->act_stop = v->act_halt = v->acting = false;
		v->out_n = 0;
	}
}

/* Removed nodes as another has them: whole views that follow our last one are installed. */
void view_learn(struct core_view *v, const struct core_view_msg *m, uint64_t now)
{
	struct view_set s = { 0 };
	uint8_t i;

	if (m->off > v->log_n || m->n > CORE_VIEW_SET)
		return;
	for (i = (uint8_t)view_min(m->n, (uint64_t)(v->log_n - m->off)); i < m->n; i++) {
		uint16_t node = m->set[i] & (uint16_t)~CORE_VIEW_END;

		if (node >= v->cfg.nodes || !view_bit(v->member, node) || view_set_has(&s, node))
			return;
		view_set_add(&s, node);
		if (m->set[i] & CORE_VIEW_END) {
			view_install(v, &s, now);
			s.n = 0;
		}
	}
}

void view_log_put(const struct core_view *v, struct core_view_msg *m, uint16_t off)
{
	m->off = off;
	m->n = 0;
	while (m->n < CORE_VIEW_SET && off + m->n < v->log_n) {
		m->set[m->n] = v->log[off + m->n];
		m->n++;
	}
}

uint32_t core_view_number(const struct core_view *v)
{
	return v->view;
}

bool core_view_member(const struct core_view *v, uint16_t node)
{
	return node < v->cfg.nodes && view_bit(v->member, node);
}

/*
 * The next members on either side, and beyond those that are suspected twice as many more: when a rack is lost its
 * neighbours look through it in strides that double, not one node after the other.
 */
unsigned int core_view_watched(const struct core_view *v, uint16_t *out)
{
	const uint16_t n = v->cfg.nodes, self = v->cfg.self;
	unsigned int got = 0;

	if (v->out)
		return 0;
	for (int down = 0; down < 2; down++) {
		unsigned int most = v->cfg.watch;
		uint16_t node = self;

		for (unsigned int k = 0; k < most && k < CORE_VIEW_NEAR / 2; k++) {
			unsigned int i = 0;

			do
				node = (uint16_t)((node + (down ? n - 1u : 1u)) % n);
			while (node != self && !view_bit(v->member, node));
			while (i < got && out[i] != node)
				i++;
			if (node == self || i < got)
				break;
			out[got++] = node;
			if (view_bit(v->suspect, node))
				most += 3;
		}
	}
	return got;
}

bool core_view_rest(const struct core_view *v)
{
	if (v->out)
		return true;
	for (unsigned int i = 0; i < VIEW_PARTS; i++)
		if (v->wave[0].phase && i < v->wave[0].n && !v->wave[0].part[i].done)
			return false;
	return !v->phase && !v->accepted && !v->suspects && !v->case_n && !v->out_n &&
	       v->patience_at == CORE_NEVER && v->switch_at == CORE_NEVER;
}
