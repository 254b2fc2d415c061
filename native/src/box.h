// The black box: one file per process in shared memory that outlives the process. Created here,
// never truncated, never unlinked; POSIX locks fall when any descriptor of the file is closed in
// this process, so the box keeps its one descriptor, and takes the lock again when it was lost.
#ifndef COMMINSIGHT_BOX_H
#define COMMINSIGHT_BOX_H
#include <cstddef>

#include "descriptor.h"
#include "host.h"
#include "settings.h"
#include "wire.h"

namespace ci {

class Box {
 public:
  // Creates, reserves, maps and locks the file in the box directory or else in the fallback directory.
  // False with `why` (one sentence) when neither works.
  bool create(const Settings& settings, const ProcessFacts& facts, char* why, size_t why_bytes);
  // Publishes the header; from here on readers accept the box.
  void go_live();
  // Puts a new identity JSON beside the old one and switches over with one store of json_offset.
  void store_json(const char* json, size_t bytes);
  void mark_closed();
  // Drain thread, at every beat: without the lock readers take this process for dead. The application may have
  // closed our descriptor, or one of its own of this file. A box that somebody took away stays without.
  void keep_lock();
  // In a forked child: lets go of the parent's box without touching it.
  void forget(bool directly_after_fork);

  ci_box_header* header() const { return header_; }
  ci_comm_row* comms() const { return at<ci_comm_row>(CI_BOX_COMM_OFFSET); }
  int64_t* losses() const { return at<int64_t>(CI_BOX_LOSS_OFFSET); }
  ci_slot* slots() const { return at<ci_slot>(CI_BOX_SLOT_OFFSET); }
  ci_record* ring() const { return at<ci_record>(CI_BOX_RING_OFFSET); }
  const char* path() const { return path_; }

 private:
  template <class T>
  T* at(int64_t offset) const {
    return reinterpret_cast<T*>(reinterpret_cast<char*>(header_) + offset);
  }
  int create_in(const char* dir, const ProcessFacts& facts);
  int reserve_and_map(int fd);
  void fill_header(const ProcessFacts& facts);

  ci_box_header* header_;
  Descriptor file_;  // kept for its lock alone
  char path_[kPathBytes + 80];
};

}  // namespace ci
#endif
