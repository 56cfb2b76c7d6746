/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The folders that root makes for a job. What was there before keeps its owner and mode.
 */
#ifndef RCSHARE_SPANK_FOLDER_H
#define RCSHARE_SPANK_FOLDER_H

#include <stdint.h>
#include <sys/types.h>

#include "spank/error.h"

/*
 * Makes `path` with mode 0755. One that is there already must be a folder, no link, of root's, which nobody
 * else may write to: root believes what stands in it. 0, or -errno with a sentence.
 */
int plug_folder_run(const char *path, struct plug_error *err);

/*
 * Makes log_dir (0755) where it is missing, and in it the job's folder (0700, the user's), as the daemon
 * would name it; the other folders on the way must be there. 0, or -errno with a sentence: that costs records, and the daemon
 * tries again by itself.
 */
int plug_folder_log(const char *log_dir, uint32_t job, uint32_t restart, uid_t uid, gid_t gid,
	struct plug_error *err);

/* Removes the job's folder in log_dir if it is empty. */
void plug_folder_log_tidy(const char *log_dir, uint32_t job, uint32_t restart);

/*
 * Removes the folder and all that is in it, however deep, following no link; a user may own it. Stops
 * where somebody fills it faster than that, with -EBUSY. 0 or -errno.
 */
int plug_folder_remove(const char *path);

#endif
