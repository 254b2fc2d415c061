// NCCL's words by content, whatever the pointer guessed; sizes; and that asking for the device needs none.
#include <string.h>

#include "check.h"
#include "nccl/device.h"
#include "nccl/words.h"
#include "wire.h"

using namespace ci::nccl;

namespace {

void words_are_compared_by_content() {
  CHECK_EQ(op_of("AllReduce"), CI_OP_ALL_REDUCE);
  CHECK_EQ(op_of("ReduceScatter"), CI_OP_REDUCE_SCATTER);
  CHECK_EQ(op_of("Reduce"), CI_OP_REDUCE);
  CHECK_EQ(op_of("AlltoAll"), CI_OP_ALL_TO_ALL);
  CHECK_EQ(op_of("Recv"), CI_OP_RECV);
  CHECK_EQ(dtype_of("ncclBfloat16"), CI_DTYPE_BFLOAT16);
  CHECK_EQ(dtype_of("ncclFloat8e5m2"), CI_DTYPE_FLOAT8_E5M2);
  CHECK_EQ(dtype_of("ncclInt8"), CI_DTYPE_INT8);
  CHECK_EQ(algorithm_of("NVLS"), CI_ALGORITHM_NVLS);
  CHECK_EQ(algorithm_of("NVLS_TREE"), CI_ALGORITHM_NVLS_TREE);
  CHECK_EQ(algorithm_of("COLLNET_CHAIN"), CI_ALGORITHM_COLLNET_CHAIN);
  CHECK_EQ(protocol_of("LL"), CI_PROTOCOL_LL);
  CHECK_EQ(protocol_of("LL128"), CI_PROTOCOL_LL128);
  CHECK_EQ(protocol_of("SIMPLE"), CI_PROTOCOL_SIMPLE);
}

void what_is_no_word_is_unknown() {
  CHECK_EQ(op_of(nullptr), CI_OP_UNKNOWN);
  CHECK_EQ(op_of(""), CI_OP_UNKNOWN);
  CHECK_EQ(op_of("AllReduceX"), CI_OP_UNKNOWN);
  CHECK_EQ(op_of("AllReduc"), CI_OP_UNKNOWN);
  CHECK_EQ(op_of("SendRecv"), CI_OP_UNKNOWN);
  CHECK_EQ(op_of("Invalid"), CI_OP_UNKNOWN);
  CHECK_EQ(dtype_of("Unknown"), CI_DTYPE_UNKNOWN);
  CHECK_EQ(algorithm_of(nullptr), CI_ALGORITHM_UNKNOWN);
  CHECK_EQ(protocol_of(""), CI_PROTOCOL_UNKNOWN);
}

// Another library may come to lie where one was unloaded.
void a_pointer_may_come_to_hold_another_word() {
  char word[16];
  strcpy(word, "AllGather");
  CHECK_EQ(op_of(word), CI_OP_ALL_GATHER);
  CHECK_EQ(op_of(word), CI_OP_ALL_GATHER);
  strcpy(word, "Send");
  CHECK_EQ(op_of(word), CI_OP_SEND);
  strcpy(word, "nothing");
  CHECK_EQ(op_of(word), CI_OP_UNKNOWN);
}

void elements_have_sizes() {
  CHECK_EQ(element_bytes(CI_DTYPE_UNKNOWN), 0);
  CHECK_EQ(element_bytes(CI_DTYPE_FLOAT8_E4M3), 1);
  CHECK_EQ(element_bytes(CI_DTYPE_BFLOAT16), 2);
  CHECK_EQ(element_bytes(CI_DTYPE_UINT32), 4);
  CHECK_EQ(element_bytes(CI_DTYPE_FLOAT64), 8);
  CHECK_EQ(element_bytes(255), 0);
}

void without_a_driver_the_device_is_unknown() {
  const DeviceFacts facts = device_facts();
  CHECK_EQ(facts.device_number, 0);
  CHECK_EQ(strlen(facts.pci_bus_id), 0);
  CHECK_EQ(facts.nccl_version, 0);
}

}  // namespace

int main() {
  words_are_compared_by_content();
  what_is_no_word_is_unknown();
  a_pointer_may_come_to_hold_another_word();
  elements_have_sizes();
  without_a_driver_the_device_is_unknown();
  return failures();
}
