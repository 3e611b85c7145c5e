/// `troupe certs`: makes a private CA, certificates for controller and hosts, and a join token.

#include <troupe/program/commands.hpp>
#include <troupe/program/support/option_ranges.hpp>

#include <troupe/processes/transport/certificates.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

namespace troupe::program {

namespace {

int make(const certificate_options& options) {
  for (const made_file& one : make_certificates(options))
    std::printf("%-40s  %s\n", one.file.c_str(), one.purpose.c_str());
  std::printf("valid for %d days; readable by you alone\n", options.days);
  return 0;
}

} // namespace

void add_certs(CLI::App& program, action& chosen) {
  auto options = std::make_shared<certificate_options>();
  CLI::App* command =
      program.add_subcommand("certs", "make a test CA, certificates signed by it and a join token for control sockets");
  command->add_option("--out", options->folder, "folder for the files; existing files are not overwritten")->required();
  command
      ->add_option("--hosts", options->hosts, "host names and IP addresses in the certificates, besides this machine's")
      ->delimiter(',');
  add_number(*command, "--days", options->days, "days for which the certificates are valid", 1, 3'650);
  command->callback([options, &chosen] { chosen = [options] { return make(*options); }; });
}

} // namespace troupe::program
