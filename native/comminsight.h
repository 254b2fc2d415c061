// The C door of the recorder: what Python reaches through ctypes.
//
// Result first: every call returns at once, never throws, never allocates on the hot path; a value of 0
// (or a negative errno where stated) means "not recorded", which the caller may ignore. Thread rules: any
// thread may call anything; ci_op_begin, ci_op_launched and ci_op_end never block and are safe to call
// with the GIL held (PyDLL); ci_flush and ci_close may block (CDLL).
#ifndef COMMINSIGHT_H
#define COMMINSIGHT_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#define CI_API __attribute__((visibility("default")))

// Version of this door; grows when a signature changes.
#define CI_API_VERSION 1
CI_API int32_t ci_api_version(void);

// Adds a string to the identity ("versions.torch", "identity.global_rank", ...). Only before the first
// communicator does it reach the first segment header; later values are written as an IDENTITY frame.
CI_API void ci_identity(const char* key, const char* value);

// Registers a communicator and returns its comm_index (>= 1), 0 when nothing is recorded. In a forked child
// bits 16 and up hold the fork depth, so that a parent's number is never taken for one of the child. The first call
// creates the black box and starts the drain thread. members: range-compressed global ranks in comm_rank
// order ("0-3", "0,4,8"), or NULL. Equal (hash, comm_rank) get growing ordinals.
CI_API uint32_t ci_comm_register(uint64_t comm_hash, const char* name, const char* desc, int32_t comm_rank,
                                 int32_t comm_size, const char* members, uint8_t backend, uint32_t lib_version);
// Marks the communicator as gone; its ops in flight are written as ABORTED.
CI_API void ci_comm_retire(uint32_t comm_index);

typedef struct ci_op {
  int64_t count;
  int64_t size_bytes;
  int64_t user_tag;
  int32_t peer_or_root;  // -1: none
  uint32_t group_id;
  uint16_t flags;
  uint8_t kind;  // RecordKind COLLECTIVE or P2P
  uint8_t op;
  uint8_t dtype;
  uint8_t red_op;
  uint16_t n_folded;
} ci_op;

// An op enters the library now: assigns op_seq and match_seq, claims a slot, stamps enqueue and start.
// Returns its handle, 0 when it is not tracked (the loss is counted by reason; sequence numbers advance
// all the same).
CI_API uint64_t ci_op_begin(uint32_t comm_index, const ci_op* op);
// The same for callers without a struct at hand.
CI_API uint64_t ci_op_begin_args(uint32_t comm_index, uint8_t kind, uint8_t op, uint8_t dtype, uint8_t red_op,
                                 int64_t count, int64_t size_bytes, int32_t peer_or_root, uint16_t flags,
                                 uint32_t group_id);
// Optional: the backend call returned (the op is queued). Stored in the slot as launch_ns.
CI_API void ci_op_launched(uint64_t handle);
// The op is over: writes its record into the ring. state is an OpState, timing_source a TimingSource.
// Calling it twice, or with 0, does nothing (a stale handle is counted). Returns 1 if a record was written.
CI_API int32_t ci_op_end(uint64_t handle, uint8_t state, uint8_t timing_source);

// Counts an op that the capture had to pass over (LossReason).
CI_API void ci_loss(uint32_t comm_index, uint8_t reason, uint32_t count);

// Puts a DRAIN marker into the stream.
CI_API void ci_drain_marker(void);

// Waits until everything recorded so far is in a segment; 0, or -ETIMEDOUT / -errno. Where segments were
// refused (network file system) there is nothing to wait for but the drain thread: 0.
CI_API int32_t ci_flush(int32_t timeout_ms);
// Seals the segment, marks the box CLOSED, stops the drain thread. Safe twice, safe before init.
CI_API int32_t ci_close(void);

// Path of the black box and of the open segment, "" when inert. Valid until ci_close.
CI_API const char* ci_box_path(void);
CI_API const char* ci_segment_path(void);
// Why the recorder is inert, "" when it records.
CI_API const char* ci_inert_reason(void);
// Counters for tests and doctor: see enum ci_stat in recorder.h.
CI_API int64_t ci_stat(int32_t which);
#ifdef __cplusplus
}
#endif
#endif
