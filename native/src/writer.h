// The stream of frames: opens segments with all that a reader needs to read them alone, rotates them,
// and survives a disk that is full or broken (whole frames only, retried with growing pauses).
#ifndef COMMINSIGHT_WRITER_H
#define COMMINSIGHT_WRITER_H
#include "segment.h"
#include "spool.h"

namespace ci {

constexpr uint32_t kFrameRecords = 512;

class Writer {
 public:
  // Where the payload of the next frame is put together: 64 KiB.
  void* payload() { return frame_.payload; }
  // Writes the payload as one frame. 0 or errno; EREMOTE: there are no segments in this process.
  int frame(Recorder& recorder, uint8_t type, uint32_t n_items, size_t payload_bytes, int64_t first_seq = 0);
  // Opens the first segment early, so that the file exists before anything happens. 0 or errno.
  int open(Recorder& recorder);
  void seal(Recorder& recorder);
  bool is_refused() const { return is_refused_; }
  int64_t segments_opened() const { return segments_opened_; }
  void forget(bool directly_after_fork) { segment_.forget(directly_after_fork); }

 private:
  static constexpr size_t kPayloadBytes = kFrameRecords * sizeof(ci_record);
  static constexpr uint32_t kRowsPerFrame = kPayloadBytes / sizeof(ci_comm_row);
  struct Frame {
    ci_frame_header header;
    alignas(8) uint8_t payload[kPayloadBytes];
  };

  int start_segment(Recorder& recorder);
  size_t preface(Recorder& recorder, uint32_t number);
  int failed(Recorder& recorder, int error);
  void succeeded(Recorder& recorder);

  Frame frame_;
  Segment segment_;
  Spool spool_;
  bool is_refused_;
  bool is_failing_;
  bool has_recovered_;
  int64_t failures_;
  int64_t retry_at_ns_;
  int64_t pause_ns_;
  int64_t segments_opened_;
  alignas(8) uint8_t preface_[sizeof(ci_segment_header) + kIdentityBytes +
                              (CI_COMM_CAPACITY / kRowsPerFrame) * sizeof(Frame)];
};

// Fills a frame header in front of its payload, checksum included.
void seal_frame(ci_frame_header* header, uint8_t type, uint32_t n_items, size_t payload_bytes, int64_t first_seq);
// The identity JSON as of now.
size_t current_identity(const Recorder& recorder, char* out);

}  // namespace ci
#endif
