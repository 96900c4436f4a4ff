"""The parts of scripts/contract.py."""
