// Indices that are types, so that a rank cannot index the buffers.
#ifndef MESHWRIGHT_IR_IDS_H_
#define MESHWRIGHT_IR_IDS_H_

#include <compare>
#include <cstddef>
#include <cstdint>

namespace meshwright {

// A place in one particular vector. The default is "none".
template <class Tag>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(size_t index) : value_(static_cast<int32_t>(index)) {}
  constexpr bool valid() const { return value_ >= 0; }
  constexpr size_t index() const { return static_cast<size_t>(value_); }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  int32_t value_ = -1;
};

using TensorId = Id<struct TensorTag>;    // Graph::tensors
using OpId = Id<struct OpTag>;            // Graph::ops
using SegmentId = Id<struct SegmentTag>;  // Graph::segments
using BufferId = Id<struct BufferTag>;    // RankClass::buffers
using BlockId = Id<struct BlockTag>;      // RankClass::blocks
using EventId = Id<struct EventTag>;      // RankClass::events
using AxisId = Id<struct AxisTag>;        // Mesh::axes

}  // namespace meshwright

#endif  // MESHWRIGHT_IR_IDS_H_
