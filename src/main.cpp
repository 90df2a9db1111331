#include "cli/cli.h"

int main(int argc, char** argv) { return echelon::run_cli({argv + 1, argv + argc}); }
