// SPDX-License-Identifier: Apache-2.0
// Memory apart from the ops that use it: named buffers with guards, and which operand of a call lies in which
// of them. A buffer may be the output of one call and the input of the next; it keeps its guards, and what
// nobody may read in it keeps its poison. A BufferSet is the host's image of what a device holds
// (harness/device/device_buffers.hpp).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/buffers/guarded_buffer.hpp"
#include "harness/ops/operand.hpp"

namespace assay {

// A handle: copies share the buffers.
class BufferSet {
 public:
  BufferSet() : list_(std::make_shared<std::vector<Named>>()) {}
  // The index of the new buffer. CheckError when the name is taken.
  int add(const std::string& name, GuardedBuffer);
  int count() const { return static_cast<int>(list_->size()); }
  const std::string& name(int buffer) const { return at(buffer).name; }
  const GuardedBuffer& operator[](int buffer) const { return at(buffer).buffer; }
  int find(const std::string& name) const;         // -1: none
  int containing(const void* host_address) const;  // the buffer that a host view points into, -1: none

 private:
  struct Named {
    std::string name;
    GuardedBuffer buffer;
  };
  const Named& at(int buffer) const;
  std::shared_ptr<std::vector<Named>> list_;
};

// Operand -> buffer, of one call. The views are the call's tensors, whose host addresses lie in the buffers.
class Bindings {
 public:
  // Over a set of its own, or over one that calls share; names of buffers begin with `prefix` ("decode.").
  Bindings() = default;
  Bindings(BufferSet set, std::string prefix) : set_(std::move(set)), prefix_(std::move(prefix)) {}
  const BufferSet& set() const { return set_; }

  // A new buffer of the set for the operand.
  GuardedBuffer& add(Operand operand, int64_t payload_bytes) {
    return add(operand, GuardedBuffer(payload_bytes));
  }
  GuardedBuffer& add(Operand, GuardedBuffer);
  // The operand lies in a buffer that exists, of the set or of nobody else.
  void bind(Operand operand, GuardedBuffer buffer) { of_[static_cast<int>(operand)] = std::move(buffer); }
  // The operand's buffer by its index (enum Operand); empty when it has none.
  GuardedBuffer& operator[](int operand) { return of_[operand]; }
  const GuardedBuffer& operator[](int operand) const { return of_[operand]; }
  GuardedBuffer& operator[](Operand operand) { return of_[static_cast<int>(operand)]; }
  const GuardedBuffer& operator[](Operand operand) const { return of_[static_cast<int>(operand)]; }

 private:
  BufferSet set_;
  std::string prefix_;
  GuardedBuffer of_[kOperandCount];
};

}  // namespace assay
