/// `troupe doctor`: reports what this machine has, what is missing and how to get it.

#include <troupe/program/commands.hpp>
#include <troupe/program/doctor/doctor_report.hpp>
#include <troupe/program/support/runtime_options.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

namespace troupe::program {

namespace {

struct doctor_options {
  runtime_options common;
  bool json = false;
  bool probe = false;
};

int run(const doctor_options& options) {
  const doctor_findings findings = examine(options.common.settings(), options.probe);
  std::fputs((options.json ? as_json(findings) : as_text(findings)).c_str(), stdout);
  return 0;
}

} // namespace

void add_doctor(CLI::App& program, action& chosen) {
  auto options = std::make_shared<doctor_options>();
  CLI::App* command =
      program.add_subcommand("doctor", "report what this machine has, what is missing and how to get it");
  options->common.add_to(*command);
  command->add_flag("--json", options->json, "print one JSON document, and nothing else, to standard output");
  command->add_flag("--probe", options->probe,
                    "form a world and report which algorithms, protocols and transports it really uses");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

} // namespace troupe::program
