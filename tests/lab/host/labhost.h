/* SPDX-License-Identifier: BSD-3-Clause */
/* The host's side of the lab: one program, one file a verb. Each returns the process's exit status. */
#ifndef LABHOST_H
#define LABHOST_H

#define LABHOST_NO_GUEST 255 /* exec: the agent did not answer, or the guest went away */
#define LABHOST_TIMEOUT	 124 /* exec: the command ran too long */

/* exec: run a command in a guest */
int exec_main(int argc, char **argv);
/* guard: keep a process that must not outlive its owner */
int guard_main(int argc, char **argv);
/* net: the Ethernet switches between the guests; netctl: a command for them */
int net_main(int argc, char **argv);
int netctl_main(int argc, char **argv);
/* monitor: a command for a guest's QEMU monitor */
int monitor_main(int argc, char **argv);
/* tsc: the rate of this machine's time stamp counter */
int tsc_main(int argc, char **argv);

#endif
