#include "simulation/simulated_network.h"

#include <exception>
#include <simgrid/s4u.hpp>
#include <string>

#include "core/error.h"

namespace zen::simulation {

namespace {

namespace sg4 = simgrid::s4u;

std::string machine(int number) {
  return "machine" + std::to_string(number);
}

// The default model scales rates and latencies as a grid's were measured once; the papers' does
// not.
sg4::Engine& engine() {
  static sg4::Engine* engine = [] {
    static char name[] = "zensync", quiet[] = "--log=xbt_cfg.threshold:error";
    static char* arguments[] = {name, quiet, nullptr};
    static int count = 2;
    auto* made = new sg4::Engine(&count, arguments);  // of the process, as SimGrid wants it
    sg4::Engine::set_config("network/model:CM02");
    sg4::Engine::set_config("network/TCP-gamma:0");
    sg4::Engine::set_config("network/crosstraffic:0");
    return made;
  }();
  return *engine;
}

}  // namespace

SimulatedNetwork::SimulatedNetwork(int machines, const Link& link)
    : machines_(machines), link_(link) {
  if (machines < 1)
    throw InvalidArgument("a simulated network has at least one machine, not " +
                          std::to_string(machines));
  if (!(link.bytes_per_second > 0) || !(link.latency_seconds > 0))
    throw InvalidArgument("a simulated link needs a rate and a latency above 0");
  engine();
  auto* zone = sg4::create_star_zone("network");
  for (int number = 0; number < machines; ++number) {
    auto* host = zone->create_host(machine(number), 1e9);
    auto* card =
        zone->create_split_duplex_link("card" + std::to_string(number), link.bytes_per_second);
    card->set_latency(link.latency_seconds / 2);  // a message passes two cards
    zone->add_route(host->get_netpoint(), nullptr, nullptr, nullptr,
                    {{card, sg4::LinkInRoute::Direction::UP}}, true);
  }
  zone->seal();
}

double SimulatedNetwork::run(int ranks, const std::function<void(int rank)>& rank) {
  if (ranks > machines_)
    throw InvalidArgument(std::to_string(ranks) + " ranks do not fit on " +
                          std::to_string(machines_) + " machines");
  std::exception_ptr first;
  const double start = sg4::Engine::get_clock();
  for (int number = 0; number < ranks; ++number)
    sg4::Actor::create("rank" + std::to_string(number), sg4::Host::by_name(machine(number)),
                       [&, number] {
                         try {
                           rank(number);
                         } catch (const std::exception&) {
                           if (!first) first = std::current_exception();
                         }
                       });
  engine().run();
  if (first) std::rethrow_exception(first);
  return sg4::Engine::get_clock() - start;
}

}  // namespace zen::simulation
