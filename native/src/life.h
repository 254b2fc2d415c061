// Birth and death of the recorder in this process: first communicator, fork, close, kill switch.
#ifndef COMMINSIGHT_LIFE_H
#define COMMINSIGHT_LIFE_H
#include "recorder.h"

namespace ci {

// The recorder of this process, nullptr when nothing is recorded (not started, inert, forked, closed).
// Called on the hot path: two loads.
Recorder* recorder();
// Registers a communicator, and before the first one starts the recorder if this process may have one: creates
// files, may block. Other threads wait for a start two seconds at most. The number to give out, 0 when nothing
// is recorded (yet: counted) or the table is full.
uint32_t register_comm(const CommSpec& spec);
const char* inert_reason();

// Waits until all that was recorded before the call is in a segment. 0 or a negative errno.
int flush(int32_t timeout_ms);
// Ends the recording; waits for the disk five seconds at most, and holds up nobody else meanwhile.
int close_recorder();

// Row number behind a number that ci_comm_register gave out; 0 when it is none of this recorder's. An op
// of a parent's communicator is counted as FORKED.
uint32_t comm_row(Recorder& recorder, uint32_t comm_token);
bool is_comm_of(const Recorder& recorder, uint32_t comm_token);
// An op came while nothing is recorded.
void note_unrecorded_op();
int64_t forked_ops();

}  // namespace ci
#endif
