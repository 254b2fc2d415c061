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
  if (write(file_.number(), line, n) == static_cast<ssize_t>(n)) return;
  const bool is_full = errno == EAGAIN;
  recorder.lose_number(is_marker(record) ? Recorder::kMarker : record.comm_index, CI_LOSSREASON_FIFO_FULL,
                       ops_of(record));
  if (!is_full) file_.close();  // EPIPE: the reader left; SIGPIPE is blocked in this thread
}

// Nobody reads: nothing is dropped, there is no stream. Looked for once a second.
bool Fifo::attach(const Recorder& recorder) {
  if (file_.is_ours()) return true;
  const int64_t now = mono_ns();
  if (now < retry_at_ns_) return false;
  retry_at_ns_ = now + kNsPerS;
  const int fd = open(recorder.settings.fifo, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
  struct stat st;
  if (fd < 0 || file_.hold(fd) != 0) return false;
  if (fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode)) return true;
  file_.close();
  return false;
}

}  // namespace ci
