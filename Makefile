.DEFAULT_GOAL := help
.PHONY: help setup run check test chaos lint audit bench clean

BIN := .venv/bin
ARGS ?=
NAME ?= topology

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Prepare .venv: packages, Java if missing, the meander command (PYTHON=... picks the interpreter)
	@PYTHON="$(PYTHON)" scripts/setup.sh

run: setup ## Watch trains circle Berlin while queries follow them, for a minute (ARGS="--for ever")
	@$(BIN)/meander demo --for 60s $(ARGS)

check: setup ## The short loop: lint, and the tests that find most (ARGS=meander/run/store: those of one room)
	@scripts/check.sh $(ARGS)

test: lint ## Lint, then run all tests (ARGS="-k delta" passes options to pytest)
	@scripts/browser.sh
	@scripts/test.sh $(ARGS)

chaos: setup ## Trouble on real processes, by itself as it needs the cores: fifty seeded schedules, and kills
	@scripts/test.sh -m chaos -p no:cacheprovider $(ARGS)

lint: setup ## Check style, types and who imports whom
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

audit: setup ## Known vulnerabilities of pinned packages; says so and goes on where the index cannot be reached
	@scripts/audit.sh $(ARGS)

bench: setup ## Run an experiment (NAME=topology)
	@$(BIN)/meander bench $(NAME) $(ARGS)

clean: ## Remove .venv, caches and build output
	rm -rf .venv dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
