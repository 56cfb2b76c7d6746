/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The addresses that Slurm has for nodes: what NodeAddr (else NodeHostname) of slurm.conf says. A name alone may
 * be known to no resolver.
 */
#ifndef RCSHARE_SPANK_NODEADDR_H
#define RCSHARE_SPANK_NODEADDR_H

/*
 * names: "a,b,c", expanded. conf: slurm.conf's lines that begin with NodeName. Returns "a=10.0.0.1,b,c=10.0.0.3", a
 * node that has no other address than its name as it was; malloc'd, NULL: no memory. Pure.
 */
char *plug_nodeaddr_join(const char *names, const char *conf);

#endif
