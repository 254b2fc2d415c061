// A place for a recorder in a test: own directories, fresh settings, threads, and the records of its segments.
#ifndef COMMINSIGHT_STAGE_H
#define COMMINSIGHT_STAGE_H
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <vector>

#include "check.h"
#include "crc32.h"
#include "wire.h"

// Directories under $TMPDIR, removed at the end; settings before the recorder starts.
class Stage {
 public:
  Stage() {
    snprintf(root_, sizeof root_, "%s/comminsight-test-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (mkdtemp(root_) == nullptr) abort();
    set("COMMINSIGHT_BOX_DIR", "/box");
    set("COMMINSIGHT_SPOOL", "/spool");
    setenv("COMMINSIGHT_FLUSH_MS", "20", 1);
  }
  ~Stage() {
    char command[256];
    snprintf(command, sizeof command, "rm -rf %s", root_);
    if (system(command) != 0) perror(command);
  }
  // Records of all segments in order; checks magic, checksums and frame sizes on the way.
  std::vector<ci_record> records() const {
    std::vector<ci_record> out;
    char session[600] = "";
    char dir[400];
    snprintf(dir, sizeof dir, "%s/spool", root_);
    if (DIR* d = opendir(dir)) {
      while (const dirent* e = readdir(d))
        if (e->d_name[0] != '.') snprintf(session, sizeof session, "%s/%.100s", dir, e->d_name);
      closedir(d);
    }
    for (int number = 1; number < 1000; number++) {
      char path[700];
      snprintf(path, sizeof path, "%s/%06d.ciseg", session, number);
      if (FILE* f = fopen(path, "rb")) {
        read_segment(f, &out);
        fclose(f);
      }
    }
    return out;
  }

 private:
  void set(const char* name, const char* below) {
    char path[256];
    snprintf(path, sizeof path, "%s%s", root_, below);
    setenv(name, path, 1);
  }
  static void read_segment(FILE* f, std::vector<ci_record>* out) {
    ci_segment_header header;
    CHECK(fread(&header, sizeof header, 1, f) == 1);
    CHECK(memcmp(header.magic, CI_SEGMENT_MAGIC, 8) == 0);
    fseek(f, header.header_bytes, SEEK_SET);
    ci_frame_header frame;
    uint8_t last = 0;
    while (fread(&frame, sizeof frame, 1, f) == 1) {
      std::vector<uint8_t> payload(frame.payload_bytes);
      CHECK_EQ(fread(payload.data(), 1, frame.payload_bytes, f), frame.payload_bytes);
      const uint32_t stated = frame.crc32;
      frame.crc32 = 0;
      CHECK_EQ(ci::crc32(ci::crc32(0, &frame, sizeof frame), payload.data(), payload.size()), stated);
      last = frame.type;
      if (frame.type != CI_FRAME_OPS) continue;
      const size_t before = out->size();
      out->resize(before + frame.n_items);
      memcpy(static_cast<void*>(out->data() + before), payload.data(), payload.size());
      CHECK_EQ((*out)[before].seq, frame.first_seq);
    }
    CHECK_EQ(last, CI_FRAME_END);
  }

  char root_[200];
};

// Runs f(i) in n threads and waits for all of them.
template <class F>
void in_threads(int n, F f) {
  struct Job {
    F* f;
    int i;
    pthread_t thread;
  };
  std::vector<Job> jobs(static_cast<size_t>(n));
  for (int i = 0; i < n; i++) {
    Job& job = jobs[static_cast<size_t>(i)];
    job.f = &f;
    job.i = i;
    auto body = [](void* p) -> void* {
      auto* own = static_cast<Job*>(p);
      (*own->f)(own->i);
      return nullptr;
    };
    if (pthread_create(&job.thread, nullptr, body, &job) != 0) abort();
  }
  for (Job& job : jobs) pthread_join(job.thread, nullptr);
}

#endif
