/* SPDX-License-Identifier: BSD-3-Clause */
/* Strangers at the control port. */
#include "node/admit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MINUTE_NS 60000000000ull

uint32_t admit_limit(uint32_t nodes)
{
	return nodes < ADMIT_MAX - ADMIT_STRANGERS ? nodes + ADMIT_STRANGERS : ADMIT_MAX;
}

static void source_addr(const struct sockaddr_storage *from, uint8_t addr[16])
{
	memset(addr, 0, 16);
	if (from->ss_family == AF_INET6) {
		memcpy(addr, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
	} else if (from->ss_family == AF_INET) {
		addr[10] = addr[11] = 0xff;
		memcpy(addr + 12, &((const struct sockaddr_in *)from)->sin_addr, 4);
	}
}

struct admit_source *admit_enter(struct admit *a, const struct sockaddr_storage *from)
{
	struct admit_source *s;
	uint8_t addr[16];

	source_addr(from, addr);
	HASH_FIND(hh, a->sources, addr, sizeof(addr), s);
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s)
			return NULL;
		memcpy(s->addr, addr, sizeof(addr));
		HASH_ADD(hh, a->sources, addr, sizeof(s->addr), s);
	}
	s->conns++;
	a->conns++;
	return s;
}

void admit_leave(struct admit *a, struct admit_source *s)
{
	a->conns--;
	if (--s->conns)
		return;
	HASH_DEL(a->sources, s);
	free(s);
}

const char *admit_name(const struct sockaddr_storage *from, char *buf, size_t size)
{
	char host[INET6_ADDRSTRLEN] = "?";
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)from;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)from;

	if (from->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
		inet_ntop(AF_INET, v6->sin6_addr.s6_addr + 12, host, sizeof(host));
	else if (from->ss_family == AF_INET6)
		inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
	else if (from->ss_family == AF_INET)
		inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
	/* both have it at the same place */
	snprintf(buf, size, "%s port %u", host, ntohs(v4->sin_port));
	return buf;
}

bool admit_refused(struct admit *a, uint64_t now, uint32_t *more)
{
	*more = 0;
	if (!a->minute || now - a->minute >= MINUTE_NS) {
		*more = a->untold;
		a->minute = now;
		a->told = a->untold = 0;
	}
	if (a->told == ADMIT_LINES) {
		a->untold++;
		return false;
	}
	a->told++;
	return true;
}
