// Our messages over shared links (simulator/flows.h) beside SimGrid's on the same transfers, in one run.
//
//   sudo apt-get install libsimgrid-dev          # for this benchmark alone
//   tools/bazel run -c opt //tests/benchmarks:simgrid
//
// SimGrid (Casanova et al., 2014) plays with its fluid model without corrections for TCP (CM02, no cross traffic),
// which is max-min fair sharing too; both simulated times are printed, so that the ratio is one of equal results. Ours
// is the best of five runs, SimGrid's one run, since an engine lives once in a process.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "simulator/flows.h"

namespace meshwright {
namespace {

namespace sg = simgrid::s4u;

constexpr double kBandwidth = 50e9, kLatency = 2e-6;  // bytes per second; seconds
constexpr int kPairs = 512, kMessages = 100;

struct Measured {
  double wall = 0, simulated = 0;  // seconds
};

Measured Ours(const FlowNetwork& network, const std::vector<Train>& trains) {
  Measured best{1e30, 0};
  for (int run = 0; run < 5; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    const auto times = PlayTrains(network, trains);
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!times.ok()) {
      std::fprintf(stderr, "simgrid: %s\n", times.status().ToString().c_str());
      std::exit(1);
    }
    Nanos end;
    for (const TrainTimes& one : *times) end = std::max(end, one.end);
    best = {std::min(best.wall, wall), ToSeconds(end)};
  }
  return best;
}

Measured Theirs(sg::Engine& engine, const std::function<void()>& add_actors) {
  const double before = sg::Engine::get_clock();
  const auto begin = std::chrono::steady_clock::now();
  add_actors();
  engine.run();
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {wall, sg::Engine::get_clock() - before};
}

void Print(const std::string& what, int64_t messages, const Measured& ours, const Measured& theirs) {
  std::printf("%-44s %9ld %12.3f %12.3f %8.0f %14.6f %14.6f\n", what.c_str(), static_cast<long>(messages),
              ours.wall * 1e3, theirs.wall * 1e3, theirs.wall / ours.wall, ours.simulated, theirs.simulated);
}

// Ring all-reduce of 1 GiB over n ranks, a link from each to the next.
class RingCase {
 public:
  RingCase(sg::NetZone* zone, int32_t n) : n_(n) {
    for (int32_t rank = 0; rank < n; ++rank)
      hosts_.push_back(zone->create_host(absl::StrCat("ring", n, "-", rank), 1e9));
    for (int32_t rank = 0; rank < n; ++rank) {
      sg::Link* link = zone->create_link(absl::StrCat("link", n, "-", rank), kBandwidth)->set_latency(kLatency)->seal();
      zone->add_route(hosts_[rank]->get_netpoint(), hosts_[(rank + 1) % n]->get_netpoint(), nullptr, nullptr,
                      {sg::LinkInRoute(link)}, false);
    }
  }
  void Run(sg::Engine& engine) const {
    FlowNetwork network;
    std::vector<Train> trains;
    network.links.assign(n_, BytesPerSecond(kBandwidth));
    const Bytes piece = GiB(1) / n_;
    for (int32_t rank = 0; rank < n_; ++rank) {
      network.routes.push_back({{rank}, Micros(2)});
      trains.push_back({.route = rank, .size = piece, .count = 2 * (n_ - 1), .feeder = (rank + n_ - 1) % n_});
    }
    const Measured theirs = Theirs(engine, [&] {
      for (int32_t rank = 0; rank < n_; ++rank) {
        sg::Actor::create("rank", hosts_[rank], [this, rank, piece] {
          sg::Mailbox* out = sg::Mailbox::by_name(absl::StrCat(n_, "to", (rank + 1) % n_));
          sg::Mailbox* in = sg::Mailbox::by_name(absl::StrCat(n_, "to", rank));
          static int payload = 0;
          for (int32_t round = 0; round < 2 * (n_ - 1); ++round) {
            int* got = nullptr;
            sg::CommPtr receive = in->get_async<int>(&got);
            sg::CommPtr send = out->put_async(&payload, static_cast<uint64_t>(piece.raw()));
            send->wait();
            receive->wait();
          }
        });
      }
    });
    Print(absl::StrCat("ring all-reduce of 1 GiB, ", n_, " ranks"), int64_t{2} * n_ * (n_ - 1), Ours(network, trains),
          theirs);
  }

 private:
  int32_t n_;
  std::vector<sg::Host*> hosts_;
};

// Pairs of senders, each pair on a link of its own, messages of odd sizes: each end changes the other's rate.
class PairsCase {
 public:
  explicit PairsCase(sg::NetZone* zone) {
    std::mt19937 random(1);
    for (int pair = 0; pair < kPairs; ++pair) {
      sg::Host* const from = zone->create_host(absl::StrCat("from", pair), 1e9);
      sg::Host* const to = zone->create_host(absl::StrCat("to", pair), 1e9);
      sg::Link* const link = zone->create_link(absl::StrCat("pair", pair), kBandwidth)->set_latency(0)->seal();
      zone->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, {sg::LinkInRoute(link)}, false);
      for (int i = 0; i < 2; ++i) {
        senders_.push_back({from, to, pair, 100'000 + static_cast<int64_t>(random() % 100'000)});
      }
    }
  }
  void Run(sg::Engine& engine) const {
    FlowNetwork network;
    std::vector<Train> trains;
    network.links.assign(kPairs, BytesPerSecond(kBandwidth));
    for (int32_t pair = 0; pair < kPairs; ++pair) network.routes.push_back({{pair}, Nanos()});
    for (const Sender& sender : senders_) {
      trains.push_back({.route = sender.pair, .size = Bytes(sender.size), .count = kMessages});
    }
    const Measured theirs = Theirs(engine, [&] {
      for (const Sender& sender : senders_) {
        sg::Actor::create("sender", sender.from, [sender] {
          for (int i = 0; i < kMessages; ++i)
            sg::Comm::sendto(sender.from, sender.to, static_cast<uint64_t>(sender.size));
        });
      }
    });
    Print("every message shares its link", int64_t{2} * kPairs * kMessages, Ours(network, trains), theirs);
  }

 private:
  struct Sender {
    sg::Host* from;
    sg::Host* to;
    int32_t pair;
    int64_t size;
  };
  std::vector<Sender> senders_;
};

void Main(int* argc, char** argv) {
  sg::Engine engine(argc, argv);
  for (const char* option : {"network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0",
                             "network/latency-factor:1", "network/bandwidth-factor:1", "network/weight-S:0"}) {
    sg::Engine::set_config(option);
  }
  sg::NetZone* const zone = sg::create_full_zone("network");
  const RingCase small(zone, 16), ring(zone, 64);
  const PairsCase pairs(zone);
  zone->seal();
  std::printf("%-44s %9s %12s %12s %8s %14s %14s\n", "", "messages", "ours ms", "SimGrid ms", "ratio", "ours says s",
              "SimGrid says s");
  small.Run(engine);
  ring.Run(engine);
  pairs.Run(engine);
}

}  // namespace
}  // namespace meshwright

int main(int argc, char** argv) {
  meshwright::Main(&argc, argv);
  return 0;
}
