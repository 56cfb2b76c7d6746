/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * addr.h - where daemons are found: their nodes' addresses as Slurm knows them (NodeAddr), else by name.
 *
 * An address of the loopback interface is of use to nobody else: Debian's installer gives a host's own name
 * one. It is passed over wherever a name leads to it, and believed where it is written as such (several
 * slurmd on one machine).
 */
#ifndef RCS_NODE_ADDR_H
#define RCS_NODE_ADDR_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct node;

#define ADDR_LISTEN_MAX 4u

/* What leads to a node: its NodeAddr, an address or a name; without one its name. */
const char *addr_name(const struct node *n, uint32_t node);
/* "10.0.0.7", "fd00::7", "localhost": no resolver is asked. */
bool addr_literal(const char *name, struct sockaddr_storage *a);
bool addr_is_loopback(const struct sockaddr_storage *a);
/* The best of what a resolver said: IPv4 before IPv6, nothing that others cannot reach. False: there is none. */
bool addr_pick(const struct addrinfo *list, struct sockaddr_storage *a);

/*
 * Fills n->addr but for the port, and n->listen. Asks a resolver only for what Slurm does not know, and gives it
 * a part of start_timeout_ms. 0 or -errno, with a sentence of SHM_SENTENCE bytes.
 */
int addr_own(struct node *n, char *why);

#endif
