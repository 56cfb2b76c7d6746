/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The words between `labhost exec` and the agent in a guest.
 *
 * One TCP connection a command. The caller sends LAB_MAGIC and the run's token, then frames. A frame
 * is a type (1 byte), a length (4 bytes, network order) and that many bytes.
 *
 *   caller                              agent
 *   magic, token
 *                                       LAB_HELLO
 *   LAB_USER? LAB_CWD? LAB_ENV* LAB_ARG+ LAB_TTY? LAB_GO
 *   LAB_STDIN* (empty: end of input)    LAB_STDOUT* LAB_STDERR*
 *   LAB_SIGNAL* LAB_WINSIZE*            LAB_EXIT or LAB_FAILED, then the end
 *
 * When the connection ends first, the agent ends the command's process group.
 */
#ifndef LAB_AGENT_H
#define LAB_AGENT_H

#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LAB_MAGIC     "LAB1"
#define LAB_TOKEN_LEN 32
#define LAB_PORT      7022
#define LAB_FRAME_MAX (64 * 1024)

enum lab_frame_type {
	LAB_HELLO = 'h',   /* agent is ready for a command */
	LAB_USER = 'U',	   /* user name; root without */
	LAB_CWD = 'D',	   /* folder; the user's home without */
	LAB_ENV = 'E',	   /* NAME=VALUE */
	LAB_ARG = 'A',	   /* one argument */
	LAB_TTY = 'T',	   /* run on a terminal: struct lab_winsize */
	LAB_STDIN_ON = 'I', /* input follows; without, the command reads /dev/null */
	LAB_GO = 'X',
	LAB_STDIN = 'i',
	LAB_STDOUT = 'o',
	LAB_STDERR = 'e',
	LAB_SIGNAL = 'S',  /* one byte: signal number */
	LAB_WINSIZE = 'W', /* struct lab_winsize */
	LAB_EXIT = 'x',	   /* one byte: status as a shell would have it */
	LAB_FAILED = 'f',  /* a sentence: the command did not start */
};

struct lab_winsize {
	uint16_t rows, cols; /* network order */
};

struct lab_header {
	uint8_t type;
	uint32_t len; /* network order */
} __attribute__((packed));

static inline int lab_write_all(int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static inline int lab_read_all(int fd, void *buf, size_t len)
{
	char *p = buf;

	while (len) {
		ssize_t n = read(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* buf may be NULL when len is 0 */
static inline int lab_frame_send(int fd, enum lab_frame_type type, const void *buf, size_t len)
{
	char out[sizeof(struct lab_header) + LAB_FRAME_MAX];
	struct lab_header h = {.type = (uint8_t)type, .len = htonl((uint32_t)len)};

	if (len > LAB_FRAME_MAX)
		return -1;
	memcpy(out, &h, sizeof(h));
	if (len)
		memcpy(out + sizeof(h), buf, len);
	return lab_write_all(fd, out, sizeof(h) + len);
}

/* Reads one frame into buf (LAB_FRAME_MAX + 1 bytes; a zero byte is put after the data). */
static inline int lab_frame_recv(int fd, uint8_t *type, char *buf, size_t *len)
{
	struct lab_header h;

	if (lab_read_all(fd, &h, sizeof(h)))
		return -1;
	*type = h.type;
	*len = ntohl(h.len);
	if (*len > LAB_FRAME_MAX || lab_read_all(fd, buf, *len))
		return -1;
	buf[*len] = '\0';
	return 0;
}

#endif
