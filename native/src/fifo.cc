#include "fifo.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text.h"

namespace ci {
namespace {

size_t render(const ci_record& r, char* out, size_t capacity) {
  Text text(out, capacity);
  text.raw("{\"seq\":").number(r.seq).raw(",\"comm_index\":").number(r.comm_index);
  text.raw(",\"op_seq\":").number(r.op_seq).raw(",\"match_seq\":").number(r.match_seq);
  text.raw(",\"kind\":").number(r.kind).raw(",\"op\":").number(r.op).raw(",\"state\":").number(r.state);
  text.raw(",\"dtype\":").number(r.dtype).raw(",\"peer_or_root\":").number(r.peer_or_root);
  text.raw(",\"count\":").number(r.count).raw(",\"size_bytes\":").number(r.size_bytes);
  text.raw(",\"start_ns\":").number(r.start_ns).raw(",\"end_ns\":").number(r.end_ns);
  text.raw(",\"flags\":").number(r.flags).raw("}\n");
  return text.size();
}

}  // namespace

void Fifo::write_record(Recorder& recorder, const ci_record& record) {
  if (recorder.settings.fifo[0] == 0 || !attach(recorder)) return;
  char line[512];  // below PIPE_BUF: a line is written whole or not at all
  const size_t n = render(record, line, sizeof line);
  if (write(fd_, line, n) == static_cast<ssize_t>(n)) return;
  recorder.lose(record.comm_index, CI_LOSSREASON_FIFO_FULL);
  if (errno == EAGAIN) return;
  close(fd_);  // EPIPE: the reader left; SIGPIPE is blocked in this thread
  is_open_ = false;
}

// Nobody reads: nothing is dropped, there is no stream. Looked for once a second.
bool Fifo::attach(const Recorder& recorder) {
  if (is_open_) return true;
  const int64_t now = mono_ns();
  if (now < retry_at_ns_) return false;
  retry_at_ns_ = now + kNsPerS;
  struct stat st;
  fd_ = open(recorder.settings.fifo, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
  if (fd_ < 0) return false;
  is_open_ = fstat(fd_, &st) == 0 && S_ISFIFO(st.st_mode);
  if (!is_open_) close(fd_);
  return is_open_;
}

}  // namespace ci
