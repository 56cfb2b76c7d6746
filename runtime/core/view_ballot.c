/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Proposer and acceptor of the next view. The names of docs/models/view.pml: promise, accept,
 * decide are view_vote() and decided() here.
 */
#include "core/view_internal.h"

/*
 * Who calls half of the view lost is itself what was lost: such a set, once accepted by a few,
 * would have to be carried on by everybody else.
 */
static bool leaves_majority(const struct core_view *v, const struct view_set *s)
{
	return s->n && (v->alive - s->n > v->alive / 2 || (v->alive == 2 && s->n == 1));
}

static bool witnessed(const struct core_view *v, const struct view_set *s)
{
	return v->word != CORE_VIEW_NONE && s->n == 1 && s->node[0] == v->word;
}

/*
 * Of two with a witness neither can accept what the other proposes, or its later death would leave
 * us with our own removal. The one whose word it has decides; the other never had a word, so no
 * decision.
 */
static bool by_witness(const struct core_view *v)
{
	return v->alive == 2 && v->cfg.witness;
}

/* Acceptor. False: the wave is not ours to carry on. */
bool view_vote(struct core_view *v, const struct core_view_msg *m, uint64_t now)
{
	const bool accept = m->phase == CORE_VIEW_ACCEPT;
	struct view_set s;

	if (m->phase != CORE_VIEW_PREPARE && !accept)
		return false;
	v->round = view_max(v->round, m->ballot >> 16);
	if (m->ballot < v->promised) {
		struct core_view_msg nack;

		view_msg(v, &nack, CORE_VIEW_NACK, m->root);
		nack.ballot = m->ballot;
		nack.acc = v->promised;
		view_send(v, &nack, CORE_VIEW_NONE);
		return false;
	}
	view_set_get(&s, m);
	for (uint8_t i = 0; i < s.n; i++)
		if (!core_view_member(v, s.node[i]))
			return false;
	if (accept && (!leaves_majority(v, &s) || by_witness(v)))
		return false;
	/* A late PREPARE after this ballot's ACCEPT. */
	if (!accept && v->accepted == m->ballot)
		return false;
	v->promised = m->ballot;
	if (accept && v->accepted != m->ballot) {
		v->accepted = m->ballot;
		v->value = s;
		v->accepted_at = now;
	}
	/* Someone else is at it: leave it the time of its waves. */
	v->phase = CORE_VIEW_IDLE;
	v->propose_at = now + view_wave_ns(v) + view_turn(v);
	if (v->patience_at != CORE_NEVER)
		v->patience_at = view_max(v->patience_at, v->propose_at);
	return true;
}

/* Majority of the view; of two the lower alone, or the one whose word the witness backs. */
bool view_quorum(const struct core_view *v, const struct view_wave *w)
{
	if (v->alive == 2 && !v->cfg.witness && view_lowest(v, false) == v->cfg.self)
		return w->own;
	if (by_witness(v) && w->phase != CORE_VIEW_BEAT)
		return w->own && witnessed(v, &w->set);
	return w->own && view_count(w) > v->alive / 2u;
}

static void retire(struct core_view *v, uint64_t now)
{
	v->phase = CORE_VIEW_IDLE;
	if (v->wave[0].root == v->cfg.self)
		v->wave[0].phase = CORE_VIEW_IDLE;
	if (v->fails < 5)
		v->fails++;
	v->propose_at = now + v->cfg.step_ns + view_noise(v, v->cfg.step_ns << v->fails);
}

static void decided(struct core_view *v, uint64_t now)
{
	struct view_set s = v->want;

	view_install(v, &s, now);
	if (!v->out)
		v->beat_at = now; /* carries the news */
}

/* A tally of our wave came in. */
void view_ballot_counted(struct core_view *v, uint64_t now)
{
	struct view_wave *w = &v->wave[0];

	if (v->phase != w->phase || v->ballot != w->ballot)
		return;
	if (!view_quorum(v, w)) {
		if (w->complete)
			v->wave_end = view_min(v->wave_end, now + v->cfg.hop_ns);
		return;
	}
	if (v->phase == CORE_VIEW_ACCEPT) {
		decided(v, now);
		return;
	}
	if (v->promised != v->ballot) {
		retire(v, now);
		return;
	}
	if (w->acc)
		v->want = w->acc_set;
	v->phase = CORE_VIEW_ACCEPT;
	v->wave_end = now + view_wave_ns(v);
	v->accepted = v->ballot;
	v->accepted_at = now;
	v->value = v->want;
	view_wave_root(v, CORE_VIEW_ACCEPT, v->ballot, &v->want, now);
}

void view_nack_rx(struct core_view *v, const struct core_view_msg *m, uint64_t now)
{
	if (!v->phase || m->ballot != v->ballot || m->acc <= v->ballot)
		return;
	v->round = view_max(v->round, m->acc >> 16);
	retire(v, now);
}

/* What is to be proposed now: those found lost, or a value whose proposer fell silent. */
static void wanted(const struct core_view *v, struct view_set *s)
{
	s->n = 0;
	view_doubt_lost(v, s);
	if (!s->n && v->accepted)
		*s = v->value;
}

static uint64_t due(const struct core_view *v)
{
	struct view_set s;

	if (v->phase)
		return v->wave_end;
	view_doubt_lost(v, &s);
	if (s.n)
		return v->propose_at;
	if (v->accepted)
		return view_max(v->propose_at, v->accepted_at + view_wave_ns(v) + view_turn(v));
	return CORE_NEVER;
}

/*
 * Perhaps the network between two halves is away. When it comes back some are heard before others, and those who are
 * left then are few enough: they are looked at once more before they are proposed.
 */
static bool too_many(const struct core_view *v)
{
	return v->alive > 2 && v->want.n && !leaves_majority(v, &v->want);
}

void view_ballot_tick(struct core_view *v, uint64_t now)
{
	if (now < due(v))
		return;
	if (v->phase) {
		retire(v, now);
		return;
	}
	wanted(v, &v->want);
	if (too_many(v) || v->too_many) {
		v->too_many = too_many(v);
		view_doubt_again(v, now);
		v->want.n = 0;
	}
	if (!leaves_majority(v, &v->want) || (by_witness(v) && !witnessed(v, &v->want))) {
		v->propose_at = now + v->cfg.step_ns + view_noise(v, v->cfg.step_ns);
		return;
	}
	v->round = view_max(v->round, v->promised >> 16) + 1;
	v->ballot = v->round << 16 | v->cfg.self;
	v->promised = v->ballot;
	v->phase = CORE_VIEW_PREPARE;
	v->wave_end = now + view_wave_ns(v);
	view_wave_root(v, CORE_VIEW_PREPARE, v->ballot, &v->want, now);
}

uint64_t view_ballot_due(const struct core_view *v)
{
	return due(v);
}
