#include "executor/host/socket_frames.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ir/testing.h"

namespace meshwright {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr uint64_t kLimit = uint64_t{1} << 40;
constexpr size_t kRead = size_t{1} << 18;  // what Read takes from the socket at once

Bytes Payload(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// The two ends of a stream: one for a connection, one whose bytes the test writes itself.
struct Ends {
  OwnedFd reading, writing;
};
Ends Connected() {
  std::array<int, 2> fds = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
  return {OwnedFd(fds[0]), OwnedFd(fds[1])};
}

// What comes of `stream` where it arrives in pieces of `piece` bytes, each read before the next one is written.
std::vector<Frame> ReadInPieces(const Bytes& stream, size_t piece) {
  Ends ends = Connected();
  FrameConnection connection(std::move(ends.reading), kLimit);
  std::vector<Frame> frames;
  for (size_t at = 0; at < stream.size();) {
    const size_t most = std::min(piece, stream.size() - at);
    const ssize_t n = send(ends.writing.get(), stream.data() + at, most, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) at += static_cast<size_t>(n);  // else it is full
    EXPECT_OK(connection.Read(frames));
  }
  EXPECT_OK(connection.Read(frames));
  return frames;
}

// Frames that end before, at and behind what is read at once, empty ones too, in pieces that cut headers and payloads.
TEST(FrameConnectionTest, FramesAreWholeHoweverTheyArrive) {
  constexpr size_t kHeader = 9;
  const std::vector<size_t> sizes = {0, 1, kRead - 2 * kHeader - 1, 0, kRead, 5, 3 * kRead + 7, kRead - kHeader, 0};
  Bytes stream;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Bytes frame = EncodeFrame(static_cast<uint8_t>(i), Payload(sizes[i], static_cast<uint32_t>(i)));
    ASSERT_EQ(frame.size(), kHeader + sizes[i]);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  for (const size_t piece : {size_t{1} << 10, size_t{4093}, kRead - 1, kRead, kRead + kHeader, stream.size()}) {
    SCOPED_TRACE(absl::StrCat("pieces of ", piece));
    const std::vector<Frame> frames = ReadInPieces(stream, piece);
    ASSERT_EQ(frames.size(), sizes.size());
    for (size_t i = 0; i < frames.size(); ++i) {
      EXPECT_EQ(frames[i].kind, i);
      EXPECT_TRUE(frames[i].payload == Payload(sizes[i], static_cast<uint32_t>(i))) << "frame " << i;
    }
  }
}

TEST(FrameConnectionTest, EveryCutOfSmallFrames) {
  Bytes stream = EncodeFrame(1, Payload(3, 1));
  const Bytes second = EncodeFrame(2, {}), third = EncodeFrame(3, Payload(20, 3));
  stream.insert(stream.end(), second.begin(), second.end());
  stream.insert(stream.end(), third.begin(), third.end());
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    const std::vector<Frame> frames = ReadInPieces(stream, piece);
    ASSERT_EQ(frames.size(), 3) << "pieces of " << piece;
    EXPECT_TRUE(frames[2].payload == Payload(20, 3)) << "pieces of " << piece;
  }
}

// A length that is no frame's takes no memory before its bytes come, and breaks the connection above the limit.
TEST(FrameConnectionTest, LengthsThatLie) {
  Ends ends = Connected();
  FrameConnection connection(std::move(ends.reading), kLimit);
  Bytes header = EncodeFrame(1, {});
  const uint64_t length = uint64_t{1} << 39;  // no machine has it
  std::copy_n(reinterpret_cast<const std::byte*>(&length), sizeof(length), header.begin() + 1);
  ASSERT_EQ(write(ends.writing.get(), header.data(), header.size()), static_cast<ssize_t>(header.size()));
  std::vector<Frame> frames;
  EXPECT_OK(connection.Read(frames));
  EXPECT_EQ(frames.size(), 0);

  Ends others = Connected();
  FrameConnection narrow(std::move(others.reading), length - 1);
  ASSERT_EQ(write(others.writing.get(), header.data(), header.size()), static_cast<ssize_t>(header.size()));
  EXPECT_THAT(narrow.Read(frames).message(), HasSubstr("a frame of 549755813888 bytes came"));
}

// A stranger may say no more than its name; whoever says a right one may have sent its first message behind it.
TEST(FrameConnectionTest, ALimitThatIsRaisedAfterTheFirstFrameHoldsForTheSecond) {
  for (const size_t size : {size_t{300}, 2 * kRead}) {
    for (const bool raised : {true, false}) {
      SCOPED_TRACE(absl::StrCat(size, " bytes, raised ", raised));
      Ends ends = Connected();
      FrameConnection connection(std::move(ends.reading), 256);
      Bytes stream = EncodeFrame(16, Payload(20, 1));
      const Bytes second = EncodeFrame(2, Payload(size, 2));
      stream.insert(stream.end(), second.begin(), second.begin() + std::min(kRead / 2, second.size()));
      ASSERT_EQ(write(ends.writing.get(), stream.data(), stream.size()), static_cast<ssize_t>(stream.size()));
      ASSERT_OK_AND_ASSIGN(const Frame first, connection.ReadOne(absl::InfiniteFuture()));
      EXPECT_EQ(first.kind, 16);
      if (raised) connection.set_limit(kLimit);
      std::vector<Frame> frames;
      if (!raised) {
        EXPECT_THAT(connection.Read(frames).message(), HasSubstr(absl::StrCat("a frame of ", size, " bytes came")));
        continue;
      }
      for (size_t at = stream.size() - 29; at < second.size();) {  // behind the first: 9 of header, 20
        ASSERT_OK(connection.Read(frames));
        const ssize_t n = send(ends.writing.get(), second.data() + at, second.size() - at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0) at += static_cast<size_t>(n);
      }
      ASSERT_OK(connection.Read(frames));
      ASSERT_EQ(frames.size(), 1);
      EXPECT_TRUE(frames[0].payload == Payload(size, 2));
    }
  }
}

TEST(FrameConnectionTest, WhatCameBeforeTheEndIsRead) {
  Ends ends = Connected();
  FrameConnection connection(std::move(ends.reading), kLimit);
  const Bytes frame = EncodeFrame(4, Payload(2 * kRead, 4));
  {
    const OwnedFd writing = std::move(ends.writing);
    size_t at = 0;
    std::vector<Frame> frames;
    while (at < frame.size()) {
      const ssize_t n = send(writing.get(), frame.data() + at, frame.size() - at, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) at += static_cast<size_t>(n);
      if (at < frame.size()) {
        ASSERT_OK(connection.Read(frames));
      }
    }
    ASSERT_EQ(frames.size(), 0);
  }
  std::vector<Frame> frames;
  EXPECT_OK(connection.Read(frames));
  ASSERT_EQ(frames.size(), 1);
  EXPECT_EQ(frames[0].payload.size(), 2 * kRead);
  EXPECT_THAT(connection.Read(frames).message(), HasSubstr("closed"));
}

// Who waits for ever does not ask without pause.
TEST(PollMillisecondsTest, IsBetweenNothingAndTheMost) {
  EXPECT_EQ(PollMilliseconds(absl::InfiniteFuture(), 1000), 1000);
  EXPECT_EQ(PollMilliseconds(absl::InfinitePast(), 1000), 0);
}

}  // namespace
}  // namespace meshwright
