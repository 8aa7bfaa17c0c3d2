// SPDX-License-Identifier: Apache-2.0
// See buffer_set.hpp.
#include "harness/buffers/buffer_set.hpp"

#include "harness/base/error.hpp"

namespace assay {

int BufferSet::add(const std::string& name, GuardedBuffer buffer) {
  ASSAY_CHECK(find(name) < 0, "two buffers are called {}", name);
  list_->push_back({name, std::move(buffer)});
  return count() - 1;
}

const BufferSet::Named& BufferSet::at(int buffer) const {
  ASSAY_CHECK(buffer >= 0 && buffer < count(), "buffer {} of {}", buffer, count());
  return (*list_)[buffer];
}

int BufferSet::find(const std::string& name) const {
  for (int i = 0; i < count(); ++i)
    if (at(i).name == name) return i;
  return -1;
}

int BufferSet::containing(const void* host_address) const {
  const auto* p = static_cast<const std::byte*>(host_address);
  for (int i = 0; i < count(); ++i) {
    const GuardedBuffer& b = at(i).buffer;
    if (p >= b.raw() && p < b.raw() + b.raw_bytes()) return i;
  }
  return -1;
}

GuardedBuffer& Bindings::add(Operand operand, GuardedBuffer buffer) {
  set_.add(prefix_ + std::string(operand_name(operand)), buffer);
  bind(operand, std::move(buffer));
  return (*this)[operand];
}

}  // namespace assay
