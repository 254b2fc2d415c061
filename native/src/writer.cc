#include "writer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "crc32.h"

namespace ci {
namespace {
constexpr int64_t kFirstPauseNs = 100 * kNsPerMs;
constexpr int64_t kLongestPauseNs = 5 * kNsPerS;
}  // namespace

void seal_frame(ci_frame_header* header, uint8_t type, uint32_t n_items, size_t payload_bytes, int64_t first_seq) {
  memset(static_cast<void*>(header), 0, sizeof *header);
  header->magic = CI_FRAME_MAGIC;
  header->type = type;
  header->n_items = n_items;
  header->payload_bytes = static_cast<uint32_t>(payload_bytes);
  header->mono_ns = mono_ns();
  header->real_ns = real_ns();
  header->first_seq = first_seq;
  header->crc32 = crc32(0, header, sizeof *header + payload_bytes);
}

size_t current_identity(const Recorder& recorder, char* out) {
  const ci_box_header& h = *recorder.box.header();
  return identity_render({&recorder.facts, recorder.created_mono_ns, recorder.created_real_ns, &recorder.environment,
                          h.active_safe_window_ns, h.active_overdue_limit_ns, h.active_min_size_bytes,
                          h.active_event_mask, h.active_profiler_mask}, out);
}

int Writer::frame(Recorder& recorder, uint8_t type, uint32_t n_items, size_t payload_bytes, int64_t first_seq) {
  const auto frame_bytes = static_cast<int64_t>(sizeof(ci_frame_header) + payload_bytes);
  if (segment_.is_open() && segment_.bytes() + frame_bytes > recorder.settings.segment_bytes) seal(recorder);
  if (const int error = open(recorder)) return error;
  seal_frame(&frame_.header, type, n_items, payload_bytes, first_seq);
  if (const int error = segment_.append(&frame_, static_cast<size_t>(frame_bytes))) return failed(recorder, error);
  succeeded(recorder);
  return 0;
}

int Writer::open(Recorder& recorder) {
  if (is_refused_) return EREMOTE;
  if (is_failing_ && mono_ns() < retry_at_ns_) return static_cast<int>(recorder.box.header()->segment_errno);
  if (segment_.is_open()) return 0;
  const int error = start_segment(recorder);
  if (error == 0) return 0;
  is_refused_ = error == EREMOTE;
  return failed(recorder, error);
}

int Writer::start_segment(Recorder& recorder) {
  if (const int error = spool_.prepare(recorder.settings, recorder.facts)) return error;
  if (const int error = spool_.make_room(recorder, recorder.settings.segment_bytes)) return error;
  uint32_t number = recorder.segment_number + 1;
  if (const int error = segment_.create(spool_.dir(), &number)) return error;
  if (const int error = segment_.append(preface_, preface(recorder, number))) {
    segment_.discard();
    return error;
  }
  if (recorder.session_dir[0] == 0) strcpy(recorder.session_dir, spool_.dir());
  store_release(recorder.segment_number, number);
  segments_opened_++;
  return 0;
}

size_t Writer::preface(Recorder& recorder, uint32_t number) {
  auto* header = reinterpret_cast<ci_segment_header*>(preface_);
  char* json = reinterpret_cast<char*>(preface_ + sizeof *header);
  memset(static_cast<void*>(header), 0, sizeof *header);
  memcpy(header->magic, CI_SEGMENT_MAGIC, sizeof header->magic);
  header->major = CI_FORMAT_MAJOR;
  header->minor = CI_FORMAT_MINOR;
  size_t json_bytes = current_identity(recorder, json);
  while (json_bytes % 8 != 0) json[json_bytes++] = ' ';  // frames start on a word
  header->json_bytes = static_cast<uint32_t>(json_bytes);
  header->header_bytes = static_cast<uint32_t>(sizeof *header + json_bytes);
  header->json_crc32 = crc32(0, json, json_bytes);
  header->segment_number = number;
  header->record_bytes = sizeof(ci_record);
  header->created_mono_ns = mono_ns();
  header->created_real_ns = real_ns();
  size_t at = header->header_bytes;
  const uint32_t count = recorder.comms.count();
  for (uint32_t first = 0; first < count; first += kRowsPerFrame) {
    const uint32_t n = count - first < kRowsPerFrame ? count - first : kRowsPerFrame;
    load_words(preface_ + at + sizeof(ci_frame_header), &recorder.comms.row(first + 1), n * sizeof(ci_comm_row));
    seal_frame(reinterpret_cast<ci_frame_header*>(preface_ + at), CI_FRAME_COMMS, n, n * sizeof(ci_comm_row), 0);
    at += sizeof(ci_frame_header) + n * sizeof(ci_comm_row);
  }
  return at;
}

void Writer::seal(Recorder& recorder) {
  if (!segment_.is_open()) return;
  ci_frame_header end;
  seal_frame(&end, CI_FRAME_END, 0, 0, 0);
  const int written = segment_.append(&end, sizeof end);
  const int sealed = segment_.seal();
  if (written != 0 || sealed != 0) failed(recorder, written != 0 ? written : sealed);
  if (sealed == 0) add(recorder.segments_sealed, 1);
}

int Writer::failed(Recorder& recorder, int error) {
  pause_ns_ = pause_ns_ == 0 ? kFirstPauseNs : pause_ns_ * 2 > kLongestPauseNs ? kLongestPauseNs : pause_ns_ * 2;
  retry_at_ns_ = mono_ns() + pause_ns_;
  if (failures_++ == 0 && !is_refused_) log_line("segment not written: %s (retrying)", strerror(error));
  is_failing_ = true;
  store_release(recorder.box.header()->segment_errno, error);
  return error;
}

void Writer::succeeded(Recorder& recorder) {
  if (!is_failing_) return;
  is_failing_ = false;
  pause_ns_ = 0;
  store_release(recorder.box.header()->segment_errno, 0);
  // Said once, as the failure was: on a nearly full disk small frames come and go for hours.
  if (!has_recovered_) log_line("segments are written again");
  has_recovered_ = true;
}

}  // namespace ci
