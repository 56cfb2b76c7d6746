/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fabric.h - which rails of two nodes reach each other. Pure.
 *
 * Rails meet by fabric: the same link layer, and GIDs of one network (InfiniBand: the subnet prefix; RoCE: the
 * IP network of the interface behind the GID). Of several rails of a node on one fabric the nth meets the
 * other's nth, so that both ends find the same pairs without a word. A rail whose fabric the other node does
 * not have meets nobody, unless the configuration of both nodes names their rails: then they meet by their
 * place in that list, whatever the fabric, since a router may join them.
 */
#ifndef RCS_NODE_FABRIC_H
#define RCS_NODE_FABRIC_H

#include <stdbool.h>
#include <stdint.h>

#define FABRIC_NONE 0xffu

struct fabric {
	uint8_t link_layer; /* IBV_LINK_LAYER_*; 0: the rail has no GID now */
	uint8_t prefix;	    /* bits of the GID that name the network; 0: not known */
	uint8_t gid[16];
};

bool fabric_same(const struct fabric *a, const struct fabric *b);
/* How many of rails[0..at-1] are on the fabric of rails[at]. */
uint8_t fabric_nth(const struct fabric *rails, unsigned at);

struct fabric_end { /* what a node says of a rail of its own */
	struct fabric f;
	uint8_t rail; /* its index there */
	uint8_t nth;  /* fabric_nth() there */
	bool named;   /* by the configuration */
};

/*
 * The rail of ours, of n, that meets the peer's; FABRIC_NONE: none does. taken: bits of those that met other
 * rails of the peer. named: ours are named by the configuration. Where both ends know the same fabrics the
 * answer is the nth; where one was down when it was asked another free one of the fabric is as good.
 */
uint8_t fabric_meet(const struct fabric *rails, unsigned n, bool named, uint32_t taken,
	const struct fabric_end *peer);

/* Order of device names: digits count as numbers, so mlx5_2 comes before mlx5_10. As strcmp. */
int fabric_name_compare(const char *a, const char *b);

#endif
