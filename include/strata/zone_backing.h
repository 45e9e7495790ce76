/*
 * strata/zone_backing.h - files behind blocks of zones (strata/zone.h): dirty frames that are reclaimed are written by strata, at the place that
 * their token says, and read from there again.
 *
 * An owner whose function `reclaim` is asked to give up a dirty block may write it itself (STRATA_ZONE_WROTE), or, where it has a file here, answer
 * STRATA_ZONE_WRITE: it has put the block out of its users' reach, and strata writes the contents, and frees the frames. Memory is always written:
 * who knows that the file has the contents already, as nobody wrote to them since they were read, answers STRATA_ZONE_YES. On STRATA_ZONE_SIM strata
 * knows that itself. The files are those of user-mode paging (strata/paging.h), which does the same for a block of addresses; this is for programs
 * that know their pages by number, as buffer pools do, and keep them in the superpages of a zone.
 *
 *     static enum strata_zone_answer reclaim(struct strata_zone *zone, uint64_t frame, uint64_t frames, uint64_t token, bool dirty, void *pool) {
 *         if (!take_out_of_table(pool, token)) return STRATA_ZONE_LATER;      // somebody uses it
 *         return STRATA_ZONE_WRITE;
 *     }
 *     static void written(struct strata_zone *zone, uint64_t frame, uint64_t frames, uint64_t token, int error, void *pool) {
 *         if (error != 0) put_back_into_table(pool, token, frame);            // else whoever misses it reads it again:
 *     }
 *     ...
 *     if (strata_zone_backing_read(zone, owner, frame, 1, token) != STRATA_ZONE_OK) ...
 *
 * What is on the disk: after strata_zone_backing_sync, what was written before. Of a block that was never written the file has what it had, or zeros.
 *
 * Valid in C11 and C++. Threads: any. Signals: not for signal handlers. errno stays as it was, but with STRATA_ZONE_FILE_ERROR, of which it says the
 * reason. fork: a child reads, but writes nothing: there STRATA_ZONE_WRITE ends as a failed write. One file descriptor an owner stays open, above 200
 * where there is room; a program that closes what it does not know gets errors (EBADF), and nothing of its own is written to.
 */
#ifndef STRATA_ZONE_BACKING_H
#define STRATA_ZONE_BACKING_H

#include <strata/zone.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zero what isn't needed. */
struct strata_zone_backing_config {
    const char *path; /* a regular file, created (mode 0600) where there is none; NULL: `file` */
    int file;         /* open for reading and writing, without O_APPEND; a duplicate is kept */
    uint64_t bytes;   /* of the file, above 0: one that is shorter grows. A block with token t has its place at t times the bytes of a frame */
    /*
     * The end of what the owner's `reclaim` has handed on. error: 0: the file has the contents, and the frames will be somebody else's
     * once this returns; else as errno has it (ENOSPC, EIO; ENODATA: the file has no place for that token, or this is a forked child): the block
     * stays where it is, and is asked about again later. On the thread that called `reclaim`, with no lock held. The block is nobody else's
     * meanwhile, as in `reclaim`: a free of it is done afterwards. NULL: nobody is told; then a block of which a write fails stays, out of reach or
     * not.
     */
    void (*written)(struct strata_zone *zone, uint64_t frame, uint64_t frames, uint64_t token, int error, void *context);
    void *context; /* of `written` */
};
/*
 * strata_zone_backing_open - an owner of the zone has a file from now on, until the zone is destroyed.
 *
 * owner: of strata_zone_owner_add. config: copied. Returns STRATA_ZONE_OK; STRATA_ZONE_BAD_ARGUMENT; STRATA_ZONE_BUSY: it has one;
 * STRATA_ZONE_NO_MEMORY; STRATA_ZONE_FILE_ERROR with errno: of open(2) or ftruncate(2); EINVAL where it is not a regular file, or opened in another
 * way; EFBIG beyond RLIMIT_FSIZE. Cost: a page of memory and a file descriptor.
 */
STRATA_API enum strata_zone_status strata_zone_backing_open(struct strata_zone *zone, unsigned owner,
                                                            const struct strata_zone_backing_config *config) STRATA_NOEXCEPT;
/*
 * strata_zone_backing_read - the contents of a block with that token, from the file to frames that are allocated and the caller's.
 *
 * Returns STRATA_ZONE_OK; STRATA_ZONE_BAD_ARGUMENT: the owner has no file, or the file no such place; STRATA_ZONE_NOT_ALLOCATED;
 * STRATA_ZONE_FILE_ERROR with errno, and the frames may hold a part. On STRATA_ZONE_SIM the frames are clean then. Cost: a read of the file.
 */
STRATA_API enum strata_zone_status strata_zone_backing_read(struct strata_zone *zone, unsigned owner, uint64_t frame, uint64_t frames,
                                                            uint64_t token) STRATA_NOEXCEPT;
/* strata_zone_backing_sync - waits until the disk has what was written. STRATA_ZONE_OK; BAD_ARGUMENT; FILE_ERROR with errno. Cost: an fdatasync. */
STRATA_API enum strata_zone_status strata_zone_backing_sync(struct strata_zone *zone, unsigned owner) STRATA_NOEXCEPT;

struct strata_zone_backing_stats {
    uint64_t bytes;         /* of the file, as it was opened */
    uint64_t written, read; /* frames */
    uint64_t write_errors, read_errors;
    uint64_t without_place; /* blocks that were to be written, and the file had no place for; or in a forked child */
};
/* strata_zone_backing_stats_get - since the file was opened. STRATA_ZONE_OK; STRATA_ZONE_BAD_ARGUMENT: it was not. Cost: constant. */
STRATA_API enum strata_zone_status strata_zone_backing_stats_get(struct strata_zone *zone, unsigned owner,
                                                                 struct strata_zone_backing_stats *stats) STRATA_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif
