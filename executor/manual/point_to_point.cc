#include "executor/manual/point_to_point.h"

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "ir/error_kind.h"
#include "ir/status.h"

namespace meshwright::manual {
namespace {

// What goes before a tensor: the lengths of the text that says what it is, and of its data.
struct Sizes {
  int64_t text = 0, data = 0;
};

template <class Container>
absl::Span<std::byte> BytesOf(Container& container) {
  return absl::MakeSpan(reinterpret_cast<std::byte*>(container.data()), container.size());
}
absl::Span<std::byte> BytesOf(Sizes& sizes) {
  return absl::MakeSpan(reinterpret_cast<std::byte*>(&sizes), sizeof(sizes));
}

absl::Status CheckPeer(const Context& context, int64_t peer) {
  MESHWRIGHT_ASSIGN_OR_RETURN(const int64_t size, context.GetGroupSize());
  if (peer >= 0 && peer < size) return absl::OkStatus();
  return ValueError("there is no rank ", peer, " in a job of ", size);
}

}  // namespace

absl::Status Send(Context& context, const Tensor& x, int64_t to) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckPeer(context, to));
  MESHWRIGHT_RETURN_IF_ERROR(CheckTensor(x));
  std::string text = ToText(x);
  Sizes sizes = {static_cast<int64_t>(text.size()), static_cast<int64_t>(x.data.size())};
  Endpoint& self = context.endpoint();
  MESHWRIGHT_RETURN_IF_ERROR(self.Send(to, Channel::kTransfer, BytesOf(sizes)));
  MESHWRIGHT_RETURN_IF_ERROR(self.Send(to, Channel::kTransfer, BytesOf(text)));
  return self.Send(to, Channel::kTransfer, x.data);
}

absl::StatusOr<Tensor> Receive(Context& context, const Shape& shape, DType dtype, int64_t from) {
  MESHWRIGHT_RETURN_IF_ERROR(CheckPeer(context, from));
  for (const int64_t extent : shape) {
    if (extent < 0) return ValueError("the shape is ", ToText(shape), "; extents are 0 or more");
  }
  Endpoint& self = context.endpoint();
  Sizes sizes;
  MESHWRIGHT_RETURN_IF_ERROR(self.Receive(from, Channel::kTransfer, BytesOf(sizes)));
  std::string text(static_cast<size_t>(sizes.text), '\0');
  MESHWRIGHT_RETURN_IF_ERROR(self.Receive(from, Channel::kTransfer, BytesOf(text)));
  // Taken whatever it is, so that the next message is the next tensor.
  Tensor x = {shape, dtype, std::vector<std::byte>(static_cast<size_t>(sizes.data))};
  MESHWRIGHT_RETURN_IF_ERROR(self.Receive(from, Channel::kTransfer, BytesOf(x.data)));
  if (text == ToText(x)) return x;
  return ValueError("rank ", self.rank(), " wants ", ToText(x), " from rank ", from, ", which sent ", text);
}

absl::StatusOr<Tensor> SendGrad(Context& context, const Tensor& x, int64_t to) {
  return Receive(context, x.shape, x.dtype, to);
}

absl::Status ReceiveGrad(Context& context, const Tensor& dy, int64_t from) { return Send(context, dy, from); }

}  // namespace meshwright::manual
