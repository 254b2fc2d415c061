// The C door: argument checks, and nothing else.
#include "../comminsight.h"

#include <stdio.h>
#include <string.h>

#include "life.h"

using ci::Recorder;

namespace {

// The caller may keep the pointer for a while; a rotation must not change the text under it.
const char* segment_path(const Recorder& r) {
  static char paths[8][ci::kPathBytes + 32];
  static uint32_t turn = 0;
  const uint32_t number = ci::load_acquire(r.segment_number);
  if (number == 0) return "";
  char* out = paths[ci::add(turn, 1) % 8];
  snprintf(out, sizeof paths[0], "%s/%06u.ciseg.open", r.session_dir, number);
  return out;
}

uint64_t begin(uint32_t comm_token, ci_record* partial) {
  Recorder* r = ci::recorder();
  if (r == nullptr) {
    ci::note_unrecorded_op();
    return 0;
  }
  const uint32_t comm = ci::comm_row(*r, comm_token);
  return comm != 0 ? r->begin(comm, partial) : 0;
}

}  // namespace

extern "C" {

CI_API int32_t ci_api_version(void) { return CI_API_VERSION; }

CI_API void ci_identity(const char* key, const char* value) { ci::identity_set(key, value); }

CI_API uint32_t ci_comm_register(uint64_t comm_hash, const char* name, const char* desc, int32_t comm_rank,
                                 int32_t comm_size, const char* members, uint8_t backend, uint32_t lib_version) {
  return ci::register_comm({comm_hash, name, desc, members, comm_rank, comm_size, 0, lib_version, backend, 0});
}

CI_API void ci_comm_retire(uint32_t comm_index) {
  Recorder* r = ci::recorder();
  if (r != nullptr && ci::is_comm_of(*r, comm_index)) r->retire_comm(comm_index & 0xFFFF);
}

CI_API uint64_t ci_op_begin(uint32_t comm_index, const ci_op* op) {
  if (op == nullptr) return 0;
  ci_record record = {};
  record.count = op->count;
  record.size_bytes = op->size_bytes;
  record.user_tag = op->user_tag;
  record.peer_or_root = op->peer_or_root;
  record.group_id = op->group_id;
  record.flags = op->flags;
  record.n_folded = op->n_folded;
  record.kind = op->kind;
  record.op = op->op;
  record.dtype = op->dtype;
  record.red_op = op->red_op;
  return begin(comm_index, &record);
}

CI_API uint64_t ci_op_begin_args(uint32_t comm_index, uint8_t kind, uint8_t op, uint8_t dtype, uint8_t red_op,
                                 int64_t count, int64_t size_bytes, int32_t peer_or_root, uint16_t flags,
                                 uint32_t group_id) {
  const ci_op whole = {count, size_bytes, 0, peer_or_root, group_id, flags, kind, op, dtype, red_op, 0};
  return ci_op_begin(comm_index, &whole);
}

CI_API void ci_op_launched(uint64_t handle) {
  Recorder* r = handle != 0 ? ci::recorder() : nullptr;
  if (r != nullptr) r->launched(handle);
}

CI_API int32_t ci_op_end(uint64_t handle, uint8_t state, uint8_t timing_source) {
  Recorder* r = handle != 0 ? ci::recorder() : nullptr;
  return r != nullptr && r->end(handle, state, timing_source) ? 1 : 0;
}

CI_API void ci_loss(uint32_t comm_index, uint8_t reason, uint32_t count) {
  Recorder* r = ci::recorder();
  if (r == nullptr) return;
  const bool is_known = comm_index == 0 || ci::is_comm_of(*r, comm_index);
  r->lose(is_known ? comm_index & 0xFFFF : 0, reason, count);
}

CI_API void ci_drain_marker(void) {
  if (Recorder* r = ci::recorder()) r->drain_marker();
}

CI_API int32_t ci_flush(int32_t timeout_ms) { return ci::flush(timeout_ms); }

CI_API int32_t ci_close(void) { return ci::close_recorder(); }

CI_API const char* ci_box_path(void) {
  const Recorder* r = ci::recorder();
  return r != nullptr ? r->box.path() : "";
}

CI_API const char* ci_segment_path(void) {
  const Recorder* r = ci::recorder();
  return r != nullptr ? segment_path(*r) : "";
}

CI_API const char* ci_inert_reason(void) { return ci::inert_reason(); }

CI_API int64_t ci_stat(int32_t which) {
  const Recorder* r = ci::recorder();
  if (which == CI_STAT_FORKED_OPS) return ci::forked_ops();
  return r != nullptr ? r->stat(which) : 0;
}

}  // extern "C"
