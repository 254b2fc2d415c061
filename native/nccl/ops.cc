#include <string.h>

#include "door.h"
#include "words.h"

namespace ci::nccl {
namespace {

bool is_rooted(uint8_t op) {
  return op == CI_OP_BROADCAST || op == CI_OP_REDUCE || op == CI_OP_GATHER || op == CI_OP_SCATTER;
}

// NCCL counts one rank's share of these; the record has the whole buffer, as with the other door.
bool is_share(uint8_t op) {
  return op == CI_OP_ALL_GATHER || op == CI_OP_REDUCE_SCATTER || op == CI_OP_GATHER || op == CI_OP_SCATTER ||
         op == CI_OP_ALL_TO_ALL;
}

}  // namespace

void describe(Door& d, uint32_t comm, ci_record* record, bool is_p2p, const char* func, size_t count,
              const char* datatype, int32_t peer_or_root) {
  record->kind = is_p2p ? CI_RECORDKIND_P2P : CI_RECORDKIND_COLLECTIVE;
  record->op = op_of(func);
  record->dtype = dtype_of(datatype);
  const int32_t n_ranks = d.recorder->comms.row(comm).comm_size;
  const int64_t parts = !is_p2p && is_share(record->op) && n_ranks > 0 ? n_ranks : 1;
  int64_t total, bytes;
  const bool overflows = __builtin_mul_overflow(static_cast<int64_t>(count), parts, &total) ||
                         __builtin_mul_overflow(total, element_bytes(record->dtype), &bytes);
  record->count = overflows || total < 0 ? 0 : total;
  record->size_bytes = overflows || total < 0 ? 0 : bytes;
  record->peer_or_root = is_p2p || is_rooted(record->op) ? peer_or_root : -1;
}

void* begin_op(Door& d, uint32_t comm, ci_record* record, uint32_t slot_flags, uint64_t group, uint32_t mask) {
  if ((mask & (kKernelCh | kKernelPhase)) == 0) slot_flags |= CI_SLOTFLAG_NO_KERNEL_EVENTS;
  const uint64_t handle = d.recorder->begin_as(comm, record, slot_flags | CI_SLOTFLAG_NCCL);
  if (handle == 0) return void_token(kRefused);
  const Token token = renamed(Token::of(handle), kCallToken);
  OpState& own = d.ops[token.slot()];
  clear_words(&own, offsetof(OpState, generation));
  store_relaxed(own.group, group);
  store_relaxed(own.has_launches, (mask & kKernelLaunch) != 0 ? 1 : 0);
  store_relaxed(own.thread, static_cast<uint64_t>(pthread_self()));
  store_release(own.generation, token.generation());
  return pointer_of(token);
}

}  // namespace ci::nccl
