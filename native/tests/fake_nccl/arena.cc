#include "arena.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

namespace fake {

// Robust: a process may be killed anywhere.
class Arena::Lock {
 public:
  explicit Lock(pthread_mutex_t* mutex) : mutex_(mutex) {
    if (pthread_mutex_lock(mutex_) == EOWNERDEAD) pthread_mutex_consistent(mutex_);
  }
  ~Lock() { pthread_mutex_unlock(mutex_); }

 private:
  pthread_mutex_t* mutex_;
};

Arena* Arena::create() {
  void* memory = mmap(nullptr, sizeof(Arena), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* arena = static_cast<Arena*>(memory);  // all zero
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&arena->mutex_, &attributes);
  for (int32_t& head : arena->heads_) head = -1;
  for (int32_t i = 0; i < kMeetings; i++) arena->meetings_[i].next = i + 1 < kMeetings ? i + 1 : -1;
  return arena;
}

int Arena::arrive(uint64_t key, uint64_t signature, int64_t start_ns, uint64_t dead_channels) {
  Lock lock(&mutex_);
  int32_t* head = &heads_[(key ^ key >> 32) % kBuckets];
  int32_t at = *head;
  while (at >= 0 && meetings_[at].key != key) at = meetings_[at].next;
  if (at < 0) {
    if (free_ < 0) return -1;
    at = free_;
    free_ = meetings_[at].next;
    meetings_[at] = Meeting{key, signature, 0, start_ns, 0, 0, false, *head};
    *head = at;
  }
  Meeting& meeting = meetings_[at];
  meeting.n_arrived++;
  meeting.dead_channels |= dead_channels;
  meeting.is_mismatched = meeting.is_mismatched || meeting.signature != signature;
  if (start_ns > meeting.latest_start_ns) meeting.latest_start_ns = start_ns;
  progress++;
  return at;
}

Arena::Outcome Arena::look(int at, int n_members) {
  Lock lock(&mutex_);
  const Meeting& meeting = meetings_[at];
  const bool has_met = meeting.n_arrived >= n_members;
  return {has_met && !meeting.is_mismatched, has_met, meeting.latest_start_ns, meeting.dead_channels};
}

void Arena::leave(int at, int n_members) {
  Lock lock(&mutex_);
  Meeting& meeting = meetings_[at];
  if (++meeting.n_left < n_members) return;
  int32_t* link = &heads_[(meeting.key ^ meeting.key >> 32) % kBuckets];
  while (*link >= 0 && *link != at) link = &meetings_[*link].next;
  if (*link < 0) return;
  *link = meeting.next;
  meeting.key = 0;
  meeting.next = free_;
  free_ = at;
}

bool Arena::barrier(int n_ranks) {
  const int round = barrier_round_.load();
  barrier_arrived_++;
  while (barrier_round_.load() == round) {
    int n_gone = 0;
    for (int rank = 0; rank < n_ranks; rank++) n_gone += places[rank].load() == static_cast<int>(Place::kGone);
    if (is_leaving) return false;
    int arrived = barrier_arrived_.load();
    if (arrived > 0 && arrived + n_gone >= n_ranks && barrier_arrived_.compare_exchange_strong(arrived, 0)) {
      barrier_round_++;
      progress++;
    } else {
      usleep(100);
    }
  }
  return true;
}

}  // namespace fake
